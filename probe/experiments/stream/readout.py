"""In and out of the stack: factors on the embedding, what the model does past its head, and embeddings a block
reads by itself.
"""

from __future__ import annotations

import torch

from ...instruments.extra import moved, part
from ...measure.rounding import digits
from ...measure.run import Run
from ..answers import explain, per_block, phrase, small, tolerance
from ..attention.arithmetic import fit_cap
from ..base import Measured, Quirk, Verdict, some
from ..mlp.routing import changed_routes
from .entrance import entrance, mixes_rows


def _fit(left: torch.Tensor, right: torch.Tensor) -> tuple[float, float]:
    """The factor c of ``right = c * left`` by least squares, and the largest difference left relative to ``right``."""
    factor = float((left.double() * right.double()).sum() / left.double().square().sum().clamp_min(1e-30))
    return factor, float((right - factor * left).abs().max() / right.abs().max().clamp_min(1e-30))


MULTIPLIERS = ("embedding_multiplier", "scale_emb", "mup_embedding_multiplier", "embedding_scale")
"""Config entries that hold what embeddings are multiplied with."""

CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
LOGIT_FACTORS = ("logit_scale", "logits_scaling", "lm_head_multiplier")
LOGIT_DIVISORS = ("logits_scaling",)
"""Config entries that hold the logits' cap, what they are multiplied with, and what they are divided by."""


def _rooted(run: Run, measured: Measured, factor: float, width: int) -> dict[str, str]:
    """What explains a factor, or its square, which is added where it is the stream's width, to within what half
    precision rounds.
    """
    if abs(factor * factor / width - 1) < 1e-2:
        measured["factor_squared"] = digits(factor * factor)
    return explain(run, measured, {"factor_squared": ["hidden_size"], "factor": MULTIPLIERS})


def scaled_embeddings(run: Run) -> Verdict:
    """The embedding module's output against the table's rows: a factor other than one makes the answer yes. Its square
    is told where it is the rows' width, to within what half precision rounds.
    """
    seen = entrance(run)
    if seen.table.shape != seen.embedded.shape:
        return Verdict("no", measured={"table_width": seen.table.shape[-1], "output_width": seen.embedded.shape[-1]})
    factor, left = _fit(seen.table[:2], seen.embedded[:2])
    if left > tolerance(run):
        return Verdict("no", measured={"error_of_a_factor": digits(left, 2)})
    measured: Measured = {"factor": digits(factor)}
    if abs(factor - 1) < tolerance(run):
        return Verdict("no", measured={"factor": 1.0})
    return Verdict("yes", measured=measured, explained=_rooted(run, measured, factor, seen.embedded.shape[-1]))


def embedding_multiplier(run: Run) -> Verdict:
    """What enters block 0 for one prompt less what enters it for another, against the same of the embedding module's
    output, so that what is added for a position cancels: a factor other than one makes the answer yes.
    """
    seen = entrance(run)
    if seen.taken is None:
        return Verdict("n/a", why="What enters block 0 has other positions or another width than the embedding gives.")
    given = seen.embedded[seen.other] - seen.embedded[0]
    factor, left = _fit(given, seen.taken[seen.other] - seen.taken[0])
    if left > tolerance(run):
        return Verdict("no", measured={"error_of_a_factor": digits(left, 2)})
    measured: Measured = {"factor": digits(factor)}
    explained = _rooted(run, measured, factor, seen.embedded.shape[-1])
    return Verdict("yes" if abs(factor - 1) > tolerance(run) else "no", measured=measured, explained=explained)


def normed_embeddings(run: Run) -> Verdict:
    """Multiplies the embedding table, and the embedding module's output, by four: a norm behind either leaves what
    comes after it as it was.
    """
    seen = entrance(run)
    close = max(1e-3, tolerance(run))
    inside = float((seen.larger_table[:2] - seen.embedded[:2]).abs().max() / seen.embedded[:2].abs().max()) < close
    between = seen.taken is not None and moved(seen.taken, seen.larger) < close
    measured: Measured = {"inside_the_embedding": inside} if inside or between else {}
    return Verdict("yes" if inside or between else "no", measured=measured)


def softcapped_logits(run: Run) -> Verdict:
    """Fits the logits against c·tanh(lm_head_output / c); logits that are the head's own, or a multiple, make the
    answer no.
    """
    head, logits = run.root("lm_head_output"), run.root("logits")
    factor, straight = _fit(head, logits)
    measured: Measured = {"error_of_a_straight_line": small(run, straight)}
    if straight <= tolerance(run):
        return Verdict("no", measured=measured)
    cap, _ = fit_cap(head, logits)
    left = float((cap * torch.tanh(head / cap) - logits).abs().max() / logits.abs().max())
    if left > tolerance(run):
        return Verdict(
            "inconclusive",
            why=f"The logits are no multiple of the head's output, and no cap fits them (factor {digits(factor)}).",
        )
    measured |= {"cap": digits(cap), "left": small(run, left)}
    return Verdict("yes", measured=measured, explained=explain(run, measured, {"cap": CAPS}))


def scaled_logits(run: Run) -> Verdict:
    """Fits the logits against a multiple of the head's output. What they are divided by is told where the config holds
    that and not the factor.
    """
    head, logits = run.root("lm_head_output"), run.root("logits")
    factor, left = _fit(head, logits)
    if left > tolerance(run):
        return Verdict("no", measured={"error_of_a_straight_line": small(run, left)})
    measured: Measured = {"factor": digits(factor)}
    if abs(factor - 1) <= tolerance(run):
        return Verdict("no", measured=measured)
    explained = explain(run, measured, {"factor": LOGIT_FACTORS})
    if not explained:
        divisor: Measured = {"divisor": digits(1 / factor)}
        explained = explain(run, divisor, {"divisor": LOGIT_DIVISORS})
        measured |= divisor if explained else {}
    return Verdict("yes", measured=measured, explained=explained)


def per_layer_embeddings(run: Run) -> Verdict:
    """Changes the token ids while the stream entering each block and the embedding module's output stay: a block that
    answers reads the ids by another way. Where they only choose its experts, that is another quirk.
    """
    seen = entrance(run)
    found: list[bool | None] = []
    for index, (chosen, mixed) in enumerate(zip(changed_routes(run).hashed, mixes_rows(run), strict=True)):
        found.append(None if mixed else moved(seen.leaving[index], seen.ids) > tolerance(run) and not chosen)
    measured: Measured = {}
    widths = {_branch_width(run, index) for index, answer in enumerate(found) if answer} - {None}
    if len(widths) == 1:
        measured["width"] = widths.pop()
    explained = explain(run, measured, {"width": ["hidden_size_per_layer_input"]})
    return per_block(found, measured, explained, unknown=MIXED)


def embeddings_again(run: Run) -> Verdict:
    """Changes the embedding module's output while the token ids and the stream entering each block stay: a block that
    answers takes the embeddings beside the stream. Block 0 takes them as its stream.
    """
    seen = entrance(run)
    found: list[bool | None] = []
    for index, mixed in enumerate(mixes_rows(run)):
        found.append(None if mixed else moved(seen.leaving[index], seen.other, seen.ids) > tolerance(run))
    return per_block(found, unknown=MIXED)


MIXED = "What a block gives for a row depends on where the row stands in its batch, so that rows say nothing here."


def batch_mixing(run: Run) -> Verdict:
    """Gives a block the same input on every row of a batch: rows that come out different mix, and so does a prompt
    with others that are padded and run beside it.
    """
    return per_block(mixes_rows(run), {"rows": len(entrance(run).leaving[0])})


def _branch_width(run: Run, index: int) -> int | None:
    projection = part(run.text.envoys[index], "per_layer_projection")
    return None if projection is None else int(projection._module.weight.shape[1])


def _times(measured: Measured) -> str:
    if "factor_squared" in measured:
        return f" by √{measured['factor_squared']:.0f}, the root of the hidden size,"
    return phrase(measured, "factor", " by {:g}")


def _of_logits(measured: Measured) -> str:
    if "divisor" in measured:
        return f"The model divides the head's output by {measured['divisor']:g} to give its logits."
    return f"The model multiplies the head's output{_times(measured)} to give its logits."


QUIRKS = (
    Quirk(
        "scaled-embeddings",
        "Scaled embeddings",
        "text",
        scaled_embeddings,
        lambda m, b, n: f"The embedding module multiplies the table's rows{_times(m)} before it returns them.",
    ),
    Quirk(
        "embedding-multiplier",
        "Embedding multiplier",
        "text",
        embedding_multiplier,
        lambda m, b, n: f"The model multiplies the embedding's output{_times(m)} before block 0.",
    ),
    Quirk(
        "normed-embeddings",
        "Normed embeddings",
        "text",
        normed_embeddings,
        lambda m, b, n: (
            "The embedding module norms the table's rows before it returns them."
            if m.get("inside_the_embedding")
            else "A norm stands between the embedding and block 0, so that the scale of `token_embeddings` is lost."
        ),
    ),
    Quirk(
        "softcapped-logits",
        "Softcapped logits",
        "text",
        softcapped_logits,
        lambda m, b, n: (
            f"The model caps its logits with a tanh{phrase(m, 'cap', ' at ±{:g}')}; `lm_head_output` is what the "
            "head gave before."
        ),
    ),
    Quirk(
        "scaled-logits",
        "Scaled logits",
        "text",
        scaled_logits,
        lambda m, b, n: _of_logits(m),
    ),
    Quirk(
        "per-layer-embeddings",
        "Per-layer embeddings",
        "text",
        per_layer_embeddings,
        lambda m, b, n: (
            f"On {some(b or [], n)} a vector of the token{phrase(m, 'width', ', {} wide,')} reaches the block "
            "beside the stream, from an embedding table of its own."
        ),
    ),
    Quirk(
        "batch-mixing",
        "Rows of a batch mix",
        "text",
        batch_mixing,
        lambda m, b, n: (
            f"On {some(b or [], n)} equal rows of a batch come out different: tokens of one row reach another, so that "
            "results depend on what is run beside a prompt."
        ),
    ),
    Quirk(
        "embeddings-again",
        "Embeddings taken again",
        "text",
        embeddings_again,
        lambda m, b, n: (
            f"On {some(b or [], n)} the token embeddings reach the block a second time, beside the stream: an edit of "
            "`token_embeddings` moves more than `layers[0].layer_input`."
        ),
    ),
)
