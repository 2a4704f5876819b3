"""Queries, keys and values that stay within a range however large their projection's output is."""

from __future__ import annotations

import torch

from ...instruments.projected import projections
from ...instruments.tap import Tapped
from ...measure.listing import listed
from ...measure.rounding import digits
from ...measure.run import Run
from ..answers import NO_ATTENTION, explain, per_block, phrase, tolerance
from ..base import Measured, Quirk, Verdict, some
from .projections import PARTS, untapped

MOST = 0.9
"""Share of the numbers that must stand at the limit: next to zero, a number stays below it after all."""


def clipped_projections(run: Run) -> Verdict:
    """Multiplies what every projection of an attention gives: queries, keys or values whose numbers then all stand at
    one limit were clipped, and others grow along. Queries and keys are looked at on the first position, where no rotary
    turns them.
    """
    found: list[bool | None] = []
    sizes: dict[str, set[float]] = {}
    for block in limits(run):
        found.append(None if block is None else bool(block))
        for name, limit in (block or {}).items():
            sizes.setdefault(name, set()).add(digits(limit))
    measured: Measured = {}
    if sizes:
        every = sorted(set().union(*sizes.values()))
        measured = {"limit": every[0] if len(every) == 1 else every, "clipped": [p for p in PARTS if p in sizes]}
    explained = explain(run, measured, {"limit": ["clip_qkv", "attn_config.clip_qkv"]})
    return per_block(found, measured, explained, absent=NO_ATTENTION, unknown=untapped(run))


def limits(run: Run) -> list[dict[str, float] | None]:
    """For each block what its queries, keys and values are limited to, by name; None where they could not be tapped."""
    row = projections(run).large
    found: list[dict[str, float] | None] = []
    for tapped in projections(run).taps:
        given = unturned(tapped, row)
        each = {name: _limit(part, tolerance(run)) for name, part in given.items()}
        found.append({name: limit for name, limit in each.items() if limit is not None} if given else None)
    return found


def unturned(tapped: Tapped, row: int) -> dict[str, torch.Tensor]:
    """A row's values, and its queries and keys on the first position, where no rotary turns them, as far as tapped."""
    heads = {"queries": tapped.queries, "keys": tapped.keys, "values": tapped.values}
    given = {name: part[row] for name, part in heads.items() if part is not None}
    return {name: part if name == "values" else part[:, :1] for name, part in given.items()}


def _limit(part: torch.Tensor, close: float) -> float | None:
    """The size at which almost all numbers stand; None where they are of several sizes."""
    sizes = part.float().abs().flatten()
    largest = float(sizes.max())
    at = sizes > largest * (1 - close)
    return largest if largest > 0 and float(at.float().mean()) > MOST else None


def _sentence(measured: Measured, blocks: list[int] | None, total: int) -> str:
    parts = measured.get("clipped") or list(PARTS)
    return (
        f"On {some(blocks or [], total)} {listed(parts)} are clipped{phrase(measured, 'limit', ' to ±{:g}')}, however "
        "large the projection's output is."
    )


QUIRKS = (Quirk("clipped-projections", "Clipped queries, keys, values", "text", clipped_projections, _sentence),)
