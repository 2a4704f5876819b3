"""How an attention turns its queries: which dimensions move with the position, in which pairs, and how fast.

Queries of one input at shifted positions are compared (:func:`probe.experiments.extra.positions`). A pair of dimensions
that turns is a complex number multiplied by one of modulus one; its angle per position is the pair's frequency.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from ..measure.run import Run
from .answers import tolerance
from .extra import once
from .forwards import SHIFTS, positions

EPSILON = 2e-7
"""Rounding of an angle in float32, relative to its size: a position times a frequency of at most one."""

SERIES = 0.02
"""Largest distance of a frequency from a geometric series, relative to it."""

SEEN = 3e-3
"""Size of a dimension, relative to the largest, below which rounding hides how it turns."""

MOVES = 0.01
"""Change of a dimension, relative to its size, from which it is taken to move."""

Style = Literal["halves", "interleaved"]
Extent = Literal["none", "whole", "leading", "both halves", "other"]


@dataclass(frozen=True)
class Rotary:
    """The rotation of one block's queries.

    Attributes:
        width: width of a head.
        turning: the dimensions that change with the position.
        extent: where they lie.
        style: which dimensions turn together; None where none turn, or in no pairs known here.
        frequencies: angle a position of each pair in radians, in the order of the pairs; NaN where it was not seen.
    """

    width: int
    turning: tuple[int, ...]
    extent: Extent
    style: Style | None
    frequencies: tuple[float, ...]

    @property
    def share(self) -> float:
        return len(self.turning) / self.width

    def base(self) -> float | None:
        """The base θ of frequencies ``f · θ^(-2i / w)``, fitted; w is the width of the head, or of its leading part.

        None for fewer than two pairs that were seen, or where the frequencies are no such series.
        """
        known = [(pair, math.log(speed)) for pair, speed in enumerate(self.frequencies) if speed > 0]
        if len(known) < 2:
            return None
        pairs, logs = (torch.tensor(side, dtype=torch.float64) for side in zip(*known, strict=True))
        slope = float(((pairs - pairs.mean()) * (logs - logs.mean())).sum() / (pairs - pairs.mean()).square().sum())
        if slope >= 0 or float((logs - logs.mean() - slope * (pairs - pairs.mean())).abs().max()) > SERIES:
            return None
        return math.exp(-slope * self.spaced / 2)

    @property
    def spaced(self) -> int:
        """The width over which the frequencies are spaced."""
        return len(self.turning) if self.extent == "leading" else self.width


@once
def rotaries(run: Run) -> list[Rotary | None]:
    """The rotation of every block; None where its queries could not be tapped."""
    taps = positions(run).taps
    return [None if tapped.queries is None else _rotary(tapped.queries.float(), tolerance(run)) for tapped in taps]


def _rotary(queries: torch.Tensor, close: float) -> Rotary:
    """From queries ``[rows, heads, seq, width]`` of one input, a row a shift.

    A dimension in which no query has anything (a norm's gain of zero) tells nothing, and is taken with the others.
    """
    width = queries.shape[-1]
    rows = queries[: len(SHIFTS)].flatten(1, 2)
    size = rows[0].abs().amax(0)
    seen = size > SEEN * size.max()
    moves = (rows[1:] - rows[:1]).abs().amax(dim=(0, 1)) > max(MOVES, close) * size
    moving, still = set((moves & seen).nonzero().flatten().tolist()), set((~moves & seen).nonzero().flatten().tolist())
    if not moving:
        return Rotary(width, (), "none", None, ())
    extent, turning = _extent(moving, still, width)
    for style, pairs in _pairings(turning, width):
        angles = _angles(rows, pairs, close)
        if angles is not None:
            return Rotary(width, turning, extent, style, angles)
    return Rotary(width, turning, extent, None, ())


def _extent(moving: set[int], still: set[int], width: int) -> tuple[Extent, tuple[int, ...]]:
    """Where the dimensions lie that move, and all that lie there."""
    half = width // 2
    lead = max(moving) + 1
    lead += lead % 2
    each = max(index % half for index in moving) + 1
    parts: tuple[tuple[Extent, tuple[int, ...]], ...] = (
        ("whole", tuple(range(width))),
        ("leading", tuple(range(lead))),
        ("both halves", (*range(each), *range(half, half + each))),
    )
    for extent, turning in parts:
        if not still & set(turning):
            return extent, turning
    return "other", tuple(sorted(moving))


def _pairings(turning: tuple[int, ...], width: int) -> list[tuple[Style, list[tuple[int, int]]]]:
    """The ways in which the turning dimensions can be paired."""
    present = set(turning)
    found: list[tuple[Style, list[tuple[int, int]]]] = []
    for apart in dict.fromkeys((width // 2, len(turning) // 2)):
        pairs = [(i, i + apart) for i in turning if i % (2 * apart) < apart and i + apart in present]
        if 2 * len(pairs) == len(turning):
            found.append(("halves", pairs))
    neighbours = [(i, i + 1) for i in turning if i % 2 == 0 and i + 1 in present]
    if 2 * len(neighbours) == len(turning):
        found.append(("interleaved", neighbours))
    return found


def _angles(rows: torch.Tensor, pairs: list[tuple[int, int]], close: float) -> tuple[float, ...] | None:
    """The angle a position of each pair, or None where a pair does not turn as one number: ``rows`` is ``[shifts,
    samples, width]``.
    """
    first, second = (list(side) for side in zip(*pairs, strict=True))
    numbers = torch.complex(rows[..., first].double(), rows[..., second].double())
    still = numbers[:1]
    turns = (numbers * still.conj()).sum(1) / still.abs().square().sum(1).clamp_min(1e-30)
    known = still.abs().amax(dim=(0, 1)) > SEEN * still.abs().amax()
    left = (numbers - turns[:, None] * still).abs().amax(dim=(1, 2)) / still.abs().amax()
    room = close + EPSILON * torch.tensor(SHIFTS, dtype=left.dtype, device=left.device)
    if bool((left > room).any()):
        return None
    angles = turns.angle()
    speed = angles[1] / SHIFTS[1]
    for row in range(2, len(SHIFTS)):
        whole = torch.round((speed * SHIFTS[row] - angles[row]) / (2 * math.pi))
        speed = (angles[row] + 2 * math.pi * whole) / SHIFTS[row]
    return tuple(abs(value) if seen else math.nan for value, seen in zip(speed.tolist(), known.tolist(), strict=True))
