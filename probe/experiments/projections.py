"""Queries, keys and values on their way to the scores: which projection each depends on, norms, biases, borrowed keys.

All of it is seen in one forward in which every attention gets the same input on every row, and a row perturbs one
projection's output (:func:`probe.experiments.extra.projections`).
"""

from __future__ import annotations

import torch

from ..measure.rounding import digits
from ..measure.run import Run
from .answers import NO_INTERFACE, explain, per_block, small, tolerance
from .base import Measured, Quirk, Verdict, some
from .extra import SCALE, attentions, decoder, moved, once, projections

PARTS = ("queries", "keys", "values")
MOVES = 1e-2
"""Relative change above which a perturbation is taken to have reached a value; noise of a value's own scale moves it by about one."""

Reach = dict[str, dict[str, float]]
"""Projection -> queries, keys and values -> how far they moved when noise was added to that projection."""


@once
def reaches(run: Run) -> list[Reach | None]:
    """For each block what each of its own projections moves; None where the attention does not use the shared interface."""
    seen = projections(run)
    found: list[Reach | None] = []
    for index, tapped in enumerate(seen.taps):
        if tapped.queries is None:
            found.append(None)
            continue
        found.append({path: {name: moved(getattr(tapped, name), seen.noise[path]) for name in PARTS} for path in seen.own[index]})
    return found


def _movers(reach: Reach, name: str) -> list[str]:
    return [path for path, moves in reach.items() if moves[name] > MOVES]


def _forgets_scale(run: Run, name: str) -> tuple[list[bool | None], float]:
    """For each block whether a value stays when the projection behind it is multiplied, and the largest change of those that stay."""
    seen = projections(run)
    found: list[bool | None] = []
    left = 0.0
    for index, reach in enumerate(reaches(run)):
        behind = [] if reach is None else _movers(reach, name)
        if reach is None or not behind:
            found.append(None)
            continue
        change = max(moved(getattr(seen.taps[index], name), seen.scaled[path]) for path in behind)
        found.append(change < max(1e-3, tolerance(run)))
        if found[-1]:
            left = max(left, change)
    return found, left


def _tapped(run: Run) -> str | None:
    return None if any(reach is not None for reach in reaches(run)) else NO_INTERFACE


def qk_norm(run: Run) -> Verdict:
    """Multiplies the output of the query and key projections by four: a norm behind them leaves the queries and keys as they were."""
    queries, left = _forgets_scale(run, "queries")
    keys, left_keys = _forgets_scale(run, "keys")
    found = [None if q is None and k is None else bool(q or k) for q, k in zip(queries, keys, strict=True)]
    measured: Measured = {"queries_normed": sum(q is True for q in queries), "keys_normed": sum(k is True for k in keys)}
    if any(found):
        measured |= {"largest_change": small(run, max(left, left_keys)), "change_without_a_norm": SCALE - 1}
    return per_block(found, measured, absent="No projection moves the queries or keys.", unknown=_tapped(run))


def value_norm(run: Run) -> Verdict:
    """The same on the values: a norm between their projection and the attention makes them forget its scale."""
    found, left = _forgets_scale(run, "values")
    measured: Measured = {"largest_change": small(run, left), "change_without_a_norm": SCALE - 1} if any(found) else {}
    return per_block(found, measured, absent="No block projects values of its own.", unknown=_tapped(run))


def values_from_keys(run: Run) -> Verdict:
    """Adds noise to each projection: where one moves both keys and values but not the queries, the values are made from the key projection."""
    found: list[bool | None] = []
    for reach in reaches(run):
        both = [] if reach is None else [p for p, moves in reach.items() if moves["keys"] > MOVES and moves["values"] > MOVES and moves["queries"] <= MOVES]
        own = [] if reach is None else _movers(reach, "values")
        found.append(None if not own else bool(both))
    return per_block(found, absent="No block projects values of its own.", unknown=_tapped(run))


def fused_qkv(run: Run) -> Verdict:
    """Adds noise to each projection: one that moves queries, keys and values alike yields all three."""
    found: list[bool | None] = []
    for reach in reaches(run):
        found.append(None if not reach else any(all(moves[name] > MOVES for name in PARTS) for moves in reach.values()))
    return per_block(found, unknown=_tapped(run))


def borrowed_kv(run: Run) -> Verdict:
    """A block whose own projections move none of its keys and values, which are another block's, and follow it when that block is perturbed."""
    seen = projections(run)
    found: list[bool | None] = []
    lender: list[int] = []
    for index, reach in enumerate(reaches(run)):
        if reach is None or seen.taps[index].keys is None:
            found.append(None)
            continue
        own = set(_movers(reach, "keys")) - set(_movers(reach, "queries"))
        found.append(not own and not _fused(reach))
        if found[-1]:
            lender.append(next((i for i in range(index - 1, -1, -1) if _same_in_every_row(run, i, index) and found[i] is False), -1))
    if -1 in lender:
        return Verdict("inconclusive", why="A block's own projections move none of its keys, and no earlier block holds the same keys and values.")
    borrowers = [index for index, answer in enumerate(found) if answer]
    measured: Measured = {"borrowers": len(borrowers), "lenders": sorted(set(lender))} if borrowers else {}
    return per_block(found, measured, explain(run, measured, {"borrowers": ["num_kv_shared_layers"]}), unknown=_tapped(run))


def _fused(reach: Reach) -> bool:
    return any(moves["queries"] > MOVES and moves["keys"] > MOVES for moves in reach.values())


def _same_in_every_row(run: Run, lender: int, borrower: int) -> bool:
    """Whether two blocks hold the same keys and values, also in the rows where the lender's projections were perturbed."""
    first, second = projections(run).taps[lender], projections(run).taps[borrower]
    pairs = ((first.keys, second.keys), (first.values, second.values))
    return all(left is not None and right is not None and left.shape == right.shape and torch.equal(left, right) for left, right in pairs)


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
    return per_block(found, measured, unknown=_tapped(run))


def _at_zero(run: Run, module: torch.nn.Module) -> float:
    width = getattr(module, "in_features", None) or next(p for p in module.parameters(recurse=False) if p.ndim == 2).shape[-1]
    with torch.no_grad():
        return float(module(torch.zeros(1, width, dtype=run.dtype, device=run.model.device)).abs().max())


def conv_qk(run: Run) -> Verdict:
    """Changes an attention's input at one position: queries or keys that move at a later one come from more than their own position."""
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
    return per_block(found, {"farthest_later_position_moved": farthest}, unknown=_tapped(run))


def gated_query(run: Run) -> Verdict:
    """The width of what the query projection returns against the width of the queries: a gate beside them makes it larger."""
    seen = projections(run)
    found: list[bool | None] = []
    ratios = set()
    for index, reach in enumerate(reaches(run)):
        only = [] if reach is None else [p for p, moves in reach.items() if moves["queries"] > MOVES and moves["keys"] <= MOVES]
        queries = seen.taps[index].queries
        if not only or queries is None:
            found.append(None)
            continue
        ratio = seen.outputs[index, only[-1]].shape[-1] / (queries.shape[1] * queries.shape[3])
        ratios.add(digits(ratio, 3))
        found.append(ratio > 1)
    return per_block(found, {"width_over_queries": sorted(ratios)}, absent="No projection yields the queries alone.", unknown=_tapped(run))


def latent_attention(run: Run) -> Verdict:
    """Counts the projections between an attention's input and its keys, and compares the widths of keys and values."""
    seen = projections(run)
    found: list[bool | None] = []
    chains = []
    for index, reach in enumerate(reaches(run)):
        tapped = seen.taps[index]
        behind = [] if reach is None else _movers(reach, "keys")
        if not behind or tapped.keys is None or tapped.values is None:
            found.append(None)
            continue
        chains.append(len(behind))
        found.append(len(behind) > 1 and tapped.keys.shape[-1] > tapped.values.shape[-1])
    return per_block(found, {"projections_behind_the_keys": max(chains, default=0)}, unknown=_tapped(run))


def attention_experts(run: Run) -> Verdict:
    """Whether a top-k is taken inside an attention."""
    found = [None if attention is None else bool(tapped.chosen) for attention, tapped in zip(attentions(run), projections(run).taps, strict=True)]
    return per_block(found)


def own_attention_arithmetic(run: Run) -> Verdict:
    """How often an attention's forward enters the shared interface: never makes the answer yes."""
    taps = projections(run).taps
    found = [None if attention is None else tapped.interface == 0 for attention, tapped in zip(attentions(run), taps, strict=True)]
    return per_block(found, {"calls": sum(tapped.interface for tapped in taps), "decoder": type(decoder(run)).__name__})


def _borrowed(measured: Measured, blocks: list[int] | None, total: int) -> str:
    lenders = measured.get("lenders")
    of = f" of {some(lenders, total)}" if lenders else " of an earlier block"
    verb = "attends" if blocks and len(blocks) == 1 or blocks and len(blocks) == total else "attend"
    return f"{some(blocks or [], total)} {verb} with the keys and values{of} and project only queries of their own; an edit of the lender's reaches them.".capitalize()


QUIRKS = (
    Quirk("qk-norm", "Query/key norms", "text", qk_norm, lambda m, b, n: (
        f"On {some(b or [], n)} the queries and keys are normed before the scores: a larger projection changes nothing, only the direction counts.")),
    Quirk("value-norm", "Value norm", "text", value_norm, lambda m, b, n: (
        f"On {some(b or [], n)} the values are normed too: multiplying the value projection leaves them as they are.")),
    Quirk("values-from-keys", "Values from the key projection", "text", values_from_keys, lambda m, b, n: (
        f"On {some(b or [], n)} there is no value projection: the values are made from the key projection's output.")),
    Quirk("borrowed-kv", "Borrowed keys and values", "text", borrowed_kv, _borrowed),
    Quirk("fused-qkv", "Fused projection", "text", fused_qkv, lambda m, b, n: (
        f"On {some(b or [], n)} one projection yields queries, keys and values together.")),
    Quirk("qkv-bias", "Biased projections", "text", qkv_bias, lambda m, b, n: (
        f"On {some(b or [], n)} the query, key and value projections add a bias: they do not give zero for zero.")),
    Quirk("conv-qk", "Convolved queries and keys", "text", conv_qk, lambda m, b, n: (
        f"On {some(b or [], n)} a query or key also depends on positions before its own.")),
    Quirk("gated-query", "Gate in the query projection", "text", gated_query, lambda m, b, n: (
        f"On {some(b or [], n)} the query projection yields a gate beside the queries.")),
    Quirk("latent-attention", "Latent attention", "text", latent_attention, lambda m, b, n: (
        f"On {some(b or [], n)} keys come through a low-rank projection and are wider than the values.")),
    Quirk("attention-experts", "Experts in the attention", "text", attention_experts, lambda m, b, n: (
        f"On {some(b or [], n)} the attention routes each token to some of its projections.")),
    Quirk("own-attention-arithmetic", "Own attention arithmetic", "text", own_attention_arithmetic, lambda m, b, n: (
        f"On {some(b or [], n)} the attention does its arithmetic itself and never enters transformers' shared attention interface.")),
)
