"""Queries, keys and values on their way to the scores: which projection each depends on, norms, biases, borrowed keys.

All of it is seen in one forward in which every attention gets the same input on every row, and a row perturbs one
projection's output (:func:`probe.instruments.projected.projections`).
"""

from __future__ import annotations

import torch

from ...instruments.extra import BRIEF, SCALE, attentions, moved, moves, once
from ...instruments.projected import projections
from ...measure.rounding import digits
from ...measure.run import Run
from ..answers import NO_ATTENTION, NO_INTERFACE, per_block, small, tolerance
from ..base import Measured, Quirk, Verdict, some
from .choices import routes

PARTS = ("queries", "keys", "values")
MOVES = 1e-2
"""Relative change above which a perturbation is taken to have reached a value; noise of a value's own scale moves
it by about one.
"""

Reach = dict[str, dict[str, float]]
"""Projection -> queries, keys and values -> how far they moved when noise was added to that projection."""


@once
def reaches(run: Run) -> list[Reach | None]:
    """For each block what each of its own projections moves; None where there is no attention, or none that can be
    tapped.
    """
    seen = projections(run)
    found: list[Reach | None] = []
    for index, tapped in enumerate(seen.taps):
        if tapped.queries is None:
            found.append(None)
            continue
        each = {name: moves(getattr(tapped, name)) for name in PARTS}
        found.append({path: {name: each[name][seen.noise[path]] for name in PARTS} for path in seen.own[index]})
    return found


def movers(reach: Reach, name: str) -> list[str]:
    return [path for path, moves in reach.items() if moves[name] > MOVES]


@once
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
        rows = [seen.scaled[path] for path in behind]
        if routes(run)[index]:
            rows.append(seen.whole)  # a larger router chooses the same projections: its scale says nothing of theirs
        value = getattr(seen.taps[index], name)
        change = max(moved(value, row) for row in rows)
        if name != "values":
            change = min(change, _spread(value))
        found.append(change < max(1e-3, tolerance(run)))
        if found[-1]:
            left = max(left, change)
    return found, left


def _spread(heads: torch.Tensor) -> float:
    """How far the lengths of a head's vectors ``[batch, heads, seq, head_dim]`` differ, relative to their mean: a norm
    without a gain, or whose gain is one number, leaves them all the same.
    """
    lengths = heads.float().norm(dim=-1).movedim(1, 0).flatten(1)
    return float((lengths.std(1) / lengths.mean(1).clamp_min(1e-30)).max())


def _absent(run: Run, what: str) -> str:
    """Why no block has an answer: it has no attention, or ``what`` is missing in those there are."""
    return what if any(each is not None for each in attentions(run)) else NO_ATTENTION


def untapped(run: Run) -> str | None:
    """Why queries and keys are unknown, where there is an attention and none was tapped."""
    pairs = zip(attentions(run), reaches(run), strict=True)
    return NO_INTERFACE if any(attention is not None and reach is None for attention, reach in pairs) else None


@once
def qk_norm(run: Run) -> Verdict:
    """Multiplies the output of the query and key projections by four: a norm behind them leaves the queries and
    keys as they were. Where what stands between them has a bias, a norm shows by all vectors having one length.
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
    absent = _absent(run, "No projection moves the queries or keys.")
    return per_block(found, measured, absent=absent, unknown=untapped(run))


def value_norm(run: Run) -> Verdict:
    """The same on the values: a norm between their projection and the attention makes them forget its scale."""
    found, left = _forgets_scale(run, "values")
    measured: Measured = {"largest_change": small(run, left), "change_without_a_norm": SCALE - 1} if any(found) else {}
    absent = _absent(run, "No block projects values of its own.")
    return per_block(found, measured, absent=absent, unknown=untapped(run))


def qkv_bias(run: Run) -> Verdict:
    """Calls each projection behind the queries, keys and values on zeros: what comes out is its bias. Where nothing
    does, calls the whole attention on zeros, for a bias that stands behind the projection.
    """
    found: list[bool | None] = []
    largest = 0.0
    for index, reach in enumerate(reaches(run)):
        attention = attentions(run)[index]
        if attention is None or not reach:
            found.append(None)
            continue
        paths = [path for path, moves in reach.items() if max(moves.values()) > MOVES]
        sizes = [at_zero(run, attention._module.get_submodule(path)) for path in paths]
        if not any(sizes):
            sizes += [added_behind(run, index, name) for name in PARTS]
        found.append(max(sizes, default=0.0) > 0)
        largest = max([largest, *sizes])
    measured: Measured = {"largest_at_zero": digits(largest, 3)}
    return per_block(found, measured, absent=NO_ATTENTION, unknown=untapped(run))


def added_behind(run: Run, index: int, name: str) -> float:
    """Largest number of a block's queries, keys or values where the attention is given zeros, and they are as long for
    every token; 0 where a norm makes them so, or where they depend on something else.
    """
    seen = projections(run)
    heads = getattr(seen.taps[index], name)
    if heads is None or heads.shape[2] != BRIEF or _forgets_scale(run, name)[0][index] is not False:
        return 0.0
    left = heads[seen.nothing].float()
    if float(left.abs().max()) <= tolerance(run) * float(heads[0].abs().max()):
        return 0.0
    return float(left.abs().max()) if _spread(left[None]) < tolerance(run) else 0.0


def at_zero(run: Run, module: torch.nn.Module) -> float:
    """Largest number that a projection gives for zeros; 0 for what takes no single vector."""
    matrix = next(p for p in module.parameters(recurse=False) if p.ndim == 2)
    for width in dict.fromkeys((getattr(module, "in_features", matrix.shape[-1]), *matrix.shape)):
        try:
            with torch.no_grad():
                out = module(torch.zeros(1, int(width), dtype=run.dtype, device=run.model.device))
        except (RuntimeError, TypeError, ValueError):
            continue
        return float(out.abs().max()) if isinstance(out, torch.Tensor) else 0.0
    return 0.0


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
            if value.shape[2] != BRIEF:
                continue  # keys that are no tokens' own: several compressed into one
            change = (value[seen.place] - value[0]).abs().amax(dim=(0, 2)) / value[0].abs().max()
            later = (change[seen.at + 1 :] > tolerance(run)).nonzero()
            reached = max(reached, int(later.max()) + 1 if len(later) else 0)
        found.append(reached > 0)
        farthest = max(farthest, reached)
    measured: Measured = {"farthest_later_position_moved": farthest}
    return per_block(found, measured, absent=NO_ATTENTION, unknown=untapped(run))


def attention_experts(run: Run) -> Verdict:
    """Whether a top-k is taken inside an attention, among as many candidates however long the prompt is, and decides
    what it returns.
    """
    return per_block(routes(run), absent=NO_ATTENTION)


def own_attention_arithmetic(run: Run) -> Verdict:
    """How often an attention's forward enters the shared interface: never makes the answer yes."""
    taps = projections(run).taps
    found = [
        None if attention is None else tapped.interface == 0
        for attention, tapped in zip(attentions(run), taps, strict=True)
    ]
    return per_block(found, {"calls": sum(tapped.interface for tapped in taps)}, absent=NO_ATTENTION)


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
