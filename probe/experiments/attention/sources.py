"""Where queries, keys and values come from: projections of their own, one for all, or an earlier block's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from ...instruments.extra import SHORT, attentions, forward, layer_types, once, token_ids
from ...instruments.projected import projections
from ...instruments.rows import removed
from ...measure.edits import noise_like
from ...measure.rounding import digits
from ...measure.run import Run
from ..answers import NO_ATTENTION, explain, per_block
from ..base import Measured, Quirk, Verdict, some
from .lending import edit_reaches
from .projections import MOVES, PARTS, Reach, movers, reaches, untapped

REACHES = "edit_of_keys_and_values_reaches"
"""The measured entry: whether an edit of the lenders' `attention_keys` and `attention_values` reaches the borrowers."""

NO_OWN = "No block projects values of its own."


def values_from_keys(run: Run) -> Verdict:
    """Adds noise to each projection: where one that is as wide as the keys, and as the values, moves both, the values
    are made from the key projection. One that yields both side by side is wider than either.
    """
    seen = projections(run)
    found: list[bool | None] = []
    for index, reach in enumerate(reaches(run)):
        keys, values = seen.taps[index].keys, seen.taps[index].values
        if not reach or keys is None or values is None or not movers(reach, "values"):
            found.append(None)
            continue
        both = set(movers(reach, "keys")) & set(movers(reach, "values")) - set(movers(reach, "queries"))
        widths = [seen.outputs[index, path].shape[-1] for path in both]
        found.append(any(width == _width(keys) == _width(values) for width in widths))
    return per_block(found, absent=NO_OWN if any(reaches(run)) else NO_ATTENTION, unknown=untapped(run))


def _width(heads: torch.Tensor) -> int:
    """Width of all heads of ``[batch, heads, seq, head_dim]`` side by side, a repeated one counted once."""
    distinct: list[torch.Tensor] = []
    for head in heads.unbind(1):
        if not any(torch.equal(head, other) for other in distinct):
            distinct.append(head)
    return len(distinct) * heads.shape[3]


def fused_qkv(run: Run) -> Verdict:
    """Adds noise to each projection: one that moves queries, keys and values alike yields all three."""
    found: list[bool | None] = []
    for reach in reaches(run):
        found.append(None if not reach else any(all(moves[name] > MOVES for name in PARTS) for moves in reach.values()))
    return per_block(found, absent=NO_ATTENTION, unknown=untapped(run))


def borrowed_kv(run: Run) -> Verdict:
    """A block whose own projections move none of its keys and values, which are another block's, and follow it when
    that block's projections are perturbed. Where there is one, noise is also written into the keys and values that the
    lenders attend with, and looked for in the borrowers'.
    """
    seen = projections(run)
    found: list[bool | None] = []
    lender: list[int] = []
    for index, reach in enumerate(reaches(run)):
        if reach is None or seen.taps[index].keys is None:
            found.append(None)
            continue
        own = set(movers(reach, "keys")) - set(movers(reach, "queries"))
        found.append(not own and not _fused(reach))
        if found[-1]:
            lender.append(
                next(
                    (i for i in range(index - 1, -1, -1) if _same_in_every_row(run, i, index) and found[i] is False), -1
                )
            )
    if -1 in lender:
        return Verdict(
            "inconclusive",
            why="A block's own projections move none of its keys, and no earlier block holds the same keys and values.",
        )
    borrowers = [index for index, answer in enumerate(found) if answer]
    measured: Measured = {}
    if borrowers:
        measured = {"borrowers": len(borrowers), "lenders": sorted(set(lender))}
        measured["last_of_its_kind"] = all(
            lent == _last_owner(run, borrower, found) for borrower, lent in zip(borrowers, lender, strict=True)
        )
        reaching = edit_reaches(run, set(lender), borrowers)
        measured |= {} if reaching is None else {REACHES: reaching}
    explained = explain(run, measured, {"borrowers": ["num_kv_shared_layers"]})
    return per_block(found, measured, explained, absent=NO_ATTENTION, unknown=untapped(run))


def _last_owner(run: Run, borrower: int, borrowed: list[bool | None]) -> int | None:
    """The last block before one, of its layer type, that projects keys of its own."""
    kinds = layer_types(run)
    return next((i for i in range(borrower - 1, -1, -1) if kinds[i] == kinds[borrower] and borrowed[i] is False), None)


def _fused(reach: Reach) -> bool:
    return any(moves["queries"] > MOVES and moves["keys"] > MOVES for moves in reach.values())


def _same_in_every_row(run: Run, lender: int, borrower: int) -> bool:
    """Whether two blocks hold the same keys and values, also in the rows where the lender's projections were
    perturbed.
    """
    first, second = projections(run).taps[lender], projections(run).taps[borrower]
    pairs = ((first.keys, second.keys), (first.values, second.values))
    return all(
        left is not None and right is not None and left.shape == right.shape and torch.equal(left, right)
        for left, right in pairs
    )


@once
def gated_query(run: Run) -> Verdict:
    """The width of what the query projection returns against the width of the queries, and how much of it the
    attention's output has a slope on: a gate beside the queries makes both larger.
    """
    seen = projections(run)
    widths: dict[int, tuple[int, int]] = {}
    wide: dict[int, str] = {}
    for index, reach in enumerate(reaches(run)):
        only = [p for p, moves in (reach or {}).items() if moves["queries"] > MOVES and moves["keys"] <= MOVES]
        queries = seen.taps[index].queries
        if only and queries is not None:
            widths[index] = seen.outputs[index, only[-1]].shape[-1], _width(queries)
            if widths[index][0] > widths[index][1]:
                wide[index] = only[-1]
    reaching = _reaching(run, wide) if wide else {}
    found = [reaching.get(index, 0) > widths[index][1] if index in widths else None for index in range(len(run.text))]
    ratios = {digits(width / own, 3) for width, own in widths.values()}
    measured: Measured = {"width_over_queries": sorted(ratios)} if ratios else {}
    absent = "No projection yields the queries alone." if any(reaches(run)) else NO_ATTENTION
    return per_block(found, measured, absent=absent, unknown=untapped(run))


def _reaching(run: Run, paths: dict[int, str]) -> dict[int, int]:
    """How many of the numbers that a projection gives a position reach what its attention returns, by its slope: for
    each block of ``paths``, which name the projections, in one forward.
    """
    reaching: dict[int, int] = {}

    def calling(index: int, path: str) -> Callable[..., None]:
        given: list[torch.Tensor] = []

        def watch(_: torch.nn.Module, __: Any, out: torch.Tensor) -> torch.Tensor:
            given.append(out.detach().requires_grad_())
            return given[-1]

        def call(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            with torch.enable_grad(), removed(module.get_submodule(path).register_forward_hook(watch)):
                out = module.forward(*args, **kwargs)
                out = out if isinstance(out, torch.Tensor) else out[0]
                (slopes,) = torch.autograd.grad((out * noise_like(out)).sum(), given[-1])
            reaching[index] = int((slopes.flatten(0, -2).abs().amax(0) > 0).sum())

        return call

    with ExitStack() as stack:
        for index, path in paths.items():
            envoy = attentions(run)[index]
            assert envoy is not None
            stack.enter_context(
                removed(envoy._module.register_forward_pre_hook(calling(index, path), with_kwargs=True))
            )
        forward(run, token_ids(run, SHORT))
    return reaching


def _borrowed(measured: Measured, blocks: list[int] | None, total: int) -> str:
    lender = "the last earlier block of the same layer type that projects them"
    of = lender if measured.get("last_of_its_kind") else "an earlier block"
    where = some(blocks or [], total)
    said = (
        f"On {where} attention takes its keys and values from {of}: only queries are projected there. An edit of what "
        "the lender's key and value projections return reaches every borrower"
    )
    if REACHES not in measured:
        return f"{said}."
    values = "of the lender's `attention_keys` or `attention_values`"
    return f"{said}, and so does one {values}." if measured[REACHES] else f"{said}; one {values} reaches none."


QUIRKS = (
    Quirk(
        "values-from-keys",
        "Values from the key projection",
        "text",
        values_from_keys,
        lambda m, b, n: (
            f"On {some(b or [], n)} there is no value projection: the values are made from the key projection's output."
        ),
    ),
    Quirk("borrowed-kv", "Borrowed keys and values", "text", borrowed_kv, _borrowed),
    Quirk(
        "fused-qkv",
        "Fused projection",
        "text",
        fused_qkv,
        lambda m, b, n: f"On {some(b or [], n)} one projection yields queries, keys and values together.",
    ),
    Quirk(
        "gated-query",
        "Gate in the query projection",
        "text",
        gated_query,
        lambda m, b, n: f"On {some(b or [], n)} the query projection yields a gate beside the queries.",
    ),
)
