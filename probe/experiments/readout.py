"""In and out of the stack: factors on the embedding, what the model does past its head, and embeddings a block
reads by itself.
"""

from __future__ import annotations

import torch

from ..measure.checks import text_positions
from ..measure.rounding import digits
from ..measure.run import Run
from .answers import explain, per_block, phrase, small, tolerance
from .attention import fit_cap
from .base import Measured, Quirk, Verdict, some
from .extra import moved, part
from .forwards import streams


def _fit(left: torch.Tensor, right: torch.Tensor) -> tuple[float, float]:
    """The factor c of ``right = c * left`` by least squares, and the largest difference left relative to ``right``."""
    factor = float((left.double() * right.double()).sum() / left.double().square().sum().clamp_min(1e-30))
    return factor, float((right - factor * left).abs().max() / right.abs().max().clamp_min(1e-30))


def scaled_embeddings(run: Run) -> Verdict:
    """The embedding module's output against the table's rows: a factor other than one makes the answer yes."""
    where = text_positions(run)
    table = run.model.embed_tokens._module.weight[run.inputs["input_ids"][where]].float()
    factor, left = _fit(table, run.root("token_embeddings")[where])
    if left > tolerance(run):
        return Verdict(
            "inconclusive",
            why="The embedding module's output is no multiple of the table's rows.",
            measured={"left": digits(left, 2)},
        )
    measured: Measured = {"factor": digits(factor), "factor_squared": digits(factor * factor)}
    if abs(factor - 1) < tolerance(run):
        return Verdict("no", measured={"factor": 1.0})
    return Verdict("yes", measured=measured, explained=explain(run, measured, {"factor_squared": ["hidden_size"]}))


def embedding_multiplier(run: Run) -> Verdict:
    """What enters block 0 against the embedding module's output: a factor other than one makes the answer yes."""
    where = text_positions(run)
    entering = run.text.get(0, "", "layer_input")
    if entering is None:
        return Verdict("inconclusive", why="What enters block 0 was not read.")
    factor, left = _fit(run.root("token_embeddings")[where], entering[where])
    if left > tolerance(run):
        return Verdict(
            "inconclusive",
            why="What enters block 0 is no multiple of the embedding module's output.",
            measured={"left": digits(left, 2)},
        )
    measured: Measured = {"factor": digits(factor)}
    names = {"factor": ["embedding_multiplier", "scale_emb", "mup_embedding_multiplier"]}
    return Verdict(
        "yes" if abs(factor - 1) > tolerance(run) else "no", measured=measured, explained=explain(run, measured, names)
    )


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
