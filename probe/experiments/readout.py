"""In and out of the stack: factors on the embedding, what the model does past its head, and embeddings a block
reads by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..measure.rounding import digits
from ..measure.run import Run
from .answers import explain, per_block, phrase, small, tolerance
from .attention import fit_cap
from .base import Measured, Quirk, Verdict, some
from .extra import SCALE, SHORT, forward, moved, once, part, times, token_ids
from .forwards import streams
from .tap import Rows, removed


def _fit(left: torch.Tensor, right: torch.Tensor) -> tuple[float, float]:
    """The factor c of ``right = c * left`` by least squares, and the largest difference left relative to ``right``."""
    factor = float((left.double() * right.double()).sum() / left.double().square().sum().clamp_min(1e-30))
    return factor, float((right - factor * left).abs().max() / right.abs().max().clamp_min(1e-30))


@dataclass
class Entering:
    """What block 0 takes for other tokens, and for a larger output of the embedding module: rows :attr:`other`,
    :attr:`larger`.

    Attributes:
        embedded: the embedding module's output, ``[rows, seq, width]``.
        taken: what block 0 takes, cut to one lane, ``[rows, seq, width]``; None where it takes other positions.
        table: the rows of the embedding table that were looked up.
        larger_table: what the embedding module gives for a table that is four times as large.
    """

    embedded: torch.Tensor
    taken: torch.Tensor | None
    table: torch.Tensor
    larger_table: torch.Tensor
    other: int = 1
    larger: int = 2


@once
def entering(run: Run) -> Entering:
    """One forward of other tokens, and of a larger embedding output, on the same positions."""
    module, block = run.model.embed_tokens._module, run.text.envoys[0]._module
    rows = Rows(3)
    ids = token_ids(run, SHORT, rows.total)
    ids[1] = token_ids(run, SHORT, seed=1)[0]
    given: list[torch.Tensor] = []
    seen: dict[str, torch.Tensor] = {}

    def look(_: torch.nn.Module, args: tuple[Any, ...], out: torch.Tensor) -> torch.Tensor:
        given.append(args[0])
        out = rows.change(2, times(SCALE))(out)
        seen["embedded"] = out.detach().float().clone()
        return out

    def enter(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        stream = next(value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
        seen.setdefault("taken", stream.detach().float().clone())

    with (
        removed(module.register_forward_hook(look)),
        removed(block.register_forward_pre_hook(enter, with_kwargs=True)),
    ):
        forward(run, ids)
    embedded = seen["embedded"]
    weight = module.weight.detach()
    with torch.no_grad():
        larger = torch.func.functional_call(module, {"weight": weight * SCALE}, (given[-1],)).float()
    return Entering(embedded, _one_lane(seen["taken"], embedded), weight[given[-1]].float(), larger)


def _one_lane(taken: torch.Tensor, like: torch.Tensor) -> torch.Tensor | None:
    """The stream that enters block 0, the first of its lanes where it has several, at the positions of the tokens."""
    rows, positions, width = like.shape
    if taken.ndim == 4:
        taken = taken.select(2 if taken.shape[:2] == like.shape[:2] else 0, 0)
    if taken.shape[0] != rows or taken.ndim != 3 or taken.shape[1] < positions or taken.shape[2] < width:
        return None
    return taken[:, -positions:, :width]


def scaled_embeddings(run: Run) -> Verdict:
    """The embedding module's output against the table's rows: a factor other than one makes the answer yes."""
    seen = entering(run)
    if seen.table.shape != seen.embedded.shape:
        return Verdict("no", measured={"table_width": seen.table.shape[-1], "output_width": seen.embedded.shape[-1]})
    factor, left = _fit(seen.table[:2], seen.embedded[:2])
    if left > tolerance(run):
        return Verdict("no", measured={"error_of_a_factor": digits(left, 2)})
    measured: Measured = {"factor": digits(factor), "factor_squared": digits(factor * factor)}
    if abs(factor - 1) < tolerance(run):
        return Verdict("no", measured={"factor": 1.0})
    return Verdict("yes", measured=measured, explained=explain(run, measured, {"factor_squared": ["hidden_size"]}))


def embedding_multiplier(run: Run) -> Verdict:
    """What enters block 0 for one prompt less what enters it for another, against the same of the embedding module's
    output, so that what is added for a position cancels: a factor other than one makes the answer yes.
    """
    seen = entering(run)
    if seen.taken is None:
        return Verdict("n/a", why="What enters block 0 has other positions or another width than the embedding gives.")
    given = seen.embedded[seen.other] - seen.embedded[0]
    factor, left = _fit(given, seen.taken[seen.other] - seen.taken[0])
    if left > tolerance(run):
        return Verdict("no", measured={"error_of_a_factor": digits(left, 2)})
    measured: Measured = {"factor": digits(factor)}
    names = {"factor": ["embedding_multiplier", "scale_emb", "mup_embedding_multiplier"]}
    return Verdict(
        "yes" if abs(factor - 1) > tolerance(run) else "no", measured=measured, explained=explain(run, measured, names)
    )


def normed_embeddings(run: Run) -> Verdict:
    """Multiplies the embedding table, and the embedding module's output, by four: a norm behind either leaves what
    comes after it as it was.
    """
    seen = entering(run)
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
    cap, _ = fit_cap(_sample(head), _sample(logits))
    left = float((cap * torch.tanh(head / cap) - logits).abs().max() / logits.abs().max())
    if left > tolerance(run):
        return Verdict(
            "inconclusive",
            why=f"The logits are no multiple of the head's output, and no cap fits them (factor {digits(factor)}).",
        )
    measured |= {"cap": digits(cap), "left": small(run, left)}
    return Verdict("yes", measured=measured, explained=explain(run, measured, {"cap": ["final_logit_softcapping"]}))


def _sample(logits: torch.Tensor) -> torch.Tensor:
    """At most some thousand logits, the same ones of any tensor of this shape."""
    flat = logits.flatten()
    return flat[:: max(1, len(flat) // 4096)]


def scaled_logits(run: Run) -> Verdict:
    """Fits the logits against a multiple of the head's output."""
    head, logits = run.root("lm_head_output"), run.root("logits")
    factor, left = _fit(head, logits)
    if left > tolerance(run):
        return Verdict("no", measured={"error_of_a_straight_line": small(run, left)})
    measured: Measured = {"factor": digits(factor)}
    return Verdict(
        "yes" if abs(factor - 1) > tolerance(run) else "no",
        measured=measured,
        explained=explain(run, measured, {"factor": ["logit_scale"]}),
    )


def per_layer_embeddings(run: Run) -> Verdict:
    """Changes the token ids while the stream entering each block stays: a block that answers reads the ids by
    another way.
    """
    changes = streams(run)
    found: list[bool | None] = [
        moved(changes.leaving[index], changes.ids) > tolerance(run) for index in range(len(run.text))
    ]
    measured: Measured = {}
    widths = {_branch_width(run, index) for index, answer in enumerate(found) if answer} - {None}
    if len(widths) == 1:
        measured["width"] = widths.pop()
    return per_block(found, measured, explain(run, measured, {"width": ["hidden_size_per_layer_input"]}))


def _branch_width(run: Run, index: int) -> int | None:
    projection = part(run.text.envoys[index], "per_layer_projection")
    return None if projection is None else int(projection._module.weight.shape[1])


def _times(measured: Measured, name: str) -> str:
    return phrase(measured, name, " by {:g}")


QUIRKS = (
    Quirk(
        "scaled-embeddings",
        "Scaled embeddings",
        "text",
        scaled_embeddings,
        lambda m, b, n: (
            f"The embedding module multiplies the table's rows by √{m['factor_squared']:.0f}, the root of the "
            "hidden size, before it returns them."
            if _is_size(m)
            else f"The embedding module multiplies the table's rows{_times(m, 'factor')} before it returns them."
        ),
    ),
    Quirk(
        "embedding-multiplier",
        "Embedding multiplier",
        "text",
        embedding_multiplier,
        lambda m, b, n: f"The model multiplies the embedding's output{_times(m, 'factor')} before block 0.",
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
        lambda m, b, n: f"The model multiplies the head's output{_times(m, 'factor')} to give its logits.",
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
)


def _is_size(measured: Measured) -> bool:
    squared = measured.get("factor_squared")
    return isinstance(squared, (int, float)) and squared > 1 and abs(squared - round(squared)) < 1e-3 * squared
