"""Queries, keys and values on their way to the scores: which projection each depends on, norms, biases, borrowed keys.

All of it is seen in one forward in which every attention gets the same input on every row, and a row perturbs one
projection's output (:func:`probe.experiments.extra.projections`).
"""

from __future__ import annotations

import torch

from ..measure.rounding import digits
from ..measure.run import Run
from .answers import NO_INTERFACE, per_block, small, tolerance
from .base import Measured, Quirk, Verdict, some
from .extra import SCALE, attentions, decoder, moved, once, projections

PARTS = ("queries", "keys", "values")
MOVES = 1e-2
"""Relative change above which a perturbation is taken to have reached a value; noise of a value's own scale moves
it by about one.
"""

Reach = dict[str, dict[str, float]]
"""Projection -> queries, keys and values -> how far they moved when noise was added to that projection."""


@once
def reaches(run: Run) -> list[Reach | None]:
    """For each block what each of its own projections moves; None where the attention does not use the shared
    interface.
    """
    seen = projections(run)
    found: list[Reach | None] = []
    for index, tapped in enumerate(seen.taps):
        if tapped.queries is None:
            found.append(None)
            continue
        found.append(
            {path: {name: moved(getattr(tapped, name), seen.noise[path]) for name in PARTS} for path in seen.own[index]}
        )
    return found


def movers(reach: Reach, name: str) -> list[str]:
    return [path for path, moves in reach.items() if moves[name] > MOVES]


def _forgets_scale(run: Run, name: str) -> tuple[list[bool | None], float]:
    """For each block whether a value stays when the projection behind it is multiplied, and the largest change of
    those that stay.
    """
    seen = projections(run)
    found: list[bool | None] = []
    left = 0.0
    for index, reach in enumerate(reaches(run)):
        behind = [] if reach is None else movers(reach, name)
        if reach is None or not behind:
            found.append(None)
            continue
        change = max(moved(getattr(seen.taps[index], name), seen.scaled[path]) for path in behind)
        found.append(change < max(1e-3, tolerance(run)))
        if found[-1]:
            left = max(left, change)
    return found, left


def untapped(run: Run) -> str | None:
    return None if any(reach is not None for reach in reaches(run)) else NO_INTERFACE


def qk_norm(run: Run) -> Verdict:
    """Multiplies the output of the query and key projections by four: a norm behind them leaves the queries and
    keys as they were.
    """
    queries, left = _forgets_scale(run, "queries")
    keys, left_keys = _forgets_scale(run, "keys")
    found = [None if q is None and k is None else bool(q or k) for q, k in zip(queries, keys, strict=True)]
    measured: Measured = {
        "queries_normed": sum(q is True for q in queries),
        "keys_normed": sum(k is True for k in keys),
    }
    if any(found):
        measured |= {"largest_change": small(run, max(left, left_keys)), "change_without_a_norm": SCALE - 1}
    return per_block(found, measured, absent="No projection moves the queries or keys.", unknown=untapped(run))


def value_norm(run: Run) -> Verdict:
    """The same on the values: a norm between their projection and the attention makes them forget its scale."""
    found, left = _forgets_scale(run, "values")
    measured: Measured = {"largest_change": small(run, left), "change_without_a_norm": SCALE - 1} if any(found) else {}
    return per_block(found, measured, absent="No block projects values of its own.", unknown=untapped(run))


def qkv_bias(run: Run) -> Verdict:
    """Calls each projection behind the queries, keys and values on zeros: what comes out is its bias."""
    found: list[bool | None] = []
    largest = 0.0
    for index, reach in enumerate(reaches(run)):
        attention = attentions(run)[index]
        if attention is None or not reach:
            found.append(None)
            continue
        paths = [path for path, moves in reach.items() if max(moves.values()) > MOVES]
        sizes = [_at_zero(run, attention._module.get_submodule(path)) for path in paths]
        found.append(max(sizes, default=0.0) > 0)
        largest = max([largest, *sizes])
    measured: Measured = {"largest_at_zero": digits(largest, 3)}
    return per_block(found, measured, unknown=untapped(run))


def _at_zero(run: Run, module: torch.nn.Module) -> float:
    width = (
        getattr(module, "in_features", None)
        or next(p for p in module.parameters(recurse=False) if p.ndim == 2).shape[-1]
    )
    with torch.no_grad():
        return float(module(torch.zeros(1, width, dtype=run.dtype, device=run.model.device)).abs().max())


def conv_qk(run: Run) -> Verdict:
    """Changes an attention's input at one position: queries or keys that move at a later one come from more than
    their own position.
    """
    seen = projections(run)
    found: list[bool | None] = []
    farthest = 0
    for tapped in seen.taps:
        if tapped.queries is None or tapped.keys is None:
            found.append(None)
            continue
        reached = 0
        for value in (tapped.queries, tapped.keys):
            change = (value[seen.place] - value[0]).abs().amax(dim=(0, 2)) / value[0].abs().max()
            later = (change[seen.at + 1 :] > tolerance(run)).nonzero()
            reached = max(reached, int(later.max()) + 1 if len(later) else 0)
        found.append(reached > 0)
        farthest = max(farthest, reached)
    return per_block(found, {"farthest_later_position_moved": farthest}, unknown=untapped(run))


def attention_experts(run: Run) -> Verdict:
    """Whether a top-k is taken inside an attention."""
    found = [
        None if attention is None else bool(tapped.chosen)
        for attention, tapped in zip(attentions(run), projections(run).taps, strict=True)
    ]
    return per_block(found)


def own_attention_arithmetic(run: Run) -> Verdict:
    """How often an attention's forward enters the shared interface: never makes the answer yes."""
    taps = projections(run).taps
    found = [
        None if attention is None else tapped.interface == 0
        for attention, tapped in zip(attentions(run), taps, strict=True)
    ]
    return per_block(found, {"calls": sum(tapped.interface for tapped in taps), "decoder": type(decoder(run)).__name__})


QUIRKS = (
    Quirk(
        "qk-norm",
        "Query/key norms",
        "text",
        qk_norm,
        lambda m, b, n: (
            f"On {some(b or [], n)} the queries and keys are normed before the scores: a larger projection "
            "changes nothing, only the direction counts."
        ),
    ),
    Quirk(
        "value-norm",
        "Value norm",
        "text",
        value_norm,
        lambda m, b, n: (
            f"On {some(b or [], n)} the values are normed too: multiplying the value projection leaves them as "
            "they are."
        ),
    ),
    Quirk(
        "qkv-bias",
        "Biased projections",
        "text",
        qkv_bias,
        lambda m, b, n: (
            f"On {some(b or [], n)} the query, key and value projections add a bias: they do not give zero for zero."
        ),
    ),
    Quirk(
        "conv-qk",
        "Convolved queries and keys",
        "text",
        conv_qk,
        lambda m, b, n: f"On {some(b or [], n)} a query or key also depends on positions before its own.",
    ),
    Quirk(
        "attention-experts",
        "Experts in the attention",
        "text",
        attention_experts,
        lambda m, b, n: f"On {some(b or [], n)} the attention routes each token to some of its projections.",
    ),
    Quirk(
        "own-attention-arithmetic",
        "Own attention arithmetic",
        "text",
        own_attention_arithmetic,
        lambda m, b, n: (
            f"On {some(b or [], n)} the attention does its arithmetic itself and never enters transformers' "
            "shared attention interface."
        ),
    ),
)
