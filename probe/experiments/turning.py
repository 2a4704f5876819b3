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
        frequencies: angle a position of each pair in radians, in the order of the pairs.
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
        """The base θ of frequencies ``f · θ^(-2i / w)``; w is the head's width, or the leading part's. None for
        fewer than two pairs, or no such series.
        """
        return self.series()[0]

    def series(self) -> tuple[float | None, float]:
        """The base, and the first frequency; the base is None where the frequencies are no geometric series."""
        if len(self.frequencies) < 2 or min(self.frequencies) <= 0:
            return None, self.frequencies[0] if self.frequencies else 0.0
        logs = torch.tensor(self.frequencies, dtype=torch.float64).log()
        steps = logs.diff()
        if float((steps - steps.mean()).abs().max()) > 1e-3 * abs(float(steps.mean())):
            return None, self.frequencies[0]
        spaced = len(self.turning) if self.extent == "leading" else self.width
        return math.exp(-float(steps.mean()) * spaced / 2), self.frequencies[0]


@once
def rotaries(run: Run) -> list[Rotary | None]:
    """The rotation of every block; None where its queries could not be tapped."""
    return [
        None if block.queries is None else _rotary(block.queries.float(), tolerance(run))
        for block in positions(run).taps
    ]


def _rotary(queries: torch.Tensor, close: float) -> Rotary:
    """From queries ``[rows, heads, seq, width]`` of one input, a row a shift."""
    width = queries.shape[-1]
    rows = queries[: len(SHIFTS)].flatten(1, 2)
    change = (rows[1:] - rows[:1]).abs().amax(dim=(0, 1)) / rows[0].abs().max()
    turning = tuple((change > close).nonzero().flatten().tolist())
    if not turning:
        return Rotary(width, (), "none", None, ())
    extent = _extent(turning, width)
    for style, pairs in _pairings(turning, width):
        angles = _angles(rows, pairs, close)
        if angles is not None:
            return Rotary(width, turning, extent, style, angles)
    return Rotary(width, turning, extent, None, ())


def _extent(turning: tuple[int, ...], width: int) -> Extent:
    count, half = len(turning), width // 2
    if count == width:
        return "whole"
    if turning == tuple(range(count)):
        return "leading"
    if turning == (*range(count // 2), *range(half, half + count // 2)):
        return "both halves"
    return "other"


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
    left = (numbers - turns[:, None] * still).abs().amax(dim=(1, 2)) / still.abs().amax()
    room = close + EPSILON * torch.tensor(SHIFTS, dtype=left.dtype, device=left.device)
    if bool((left > room).any()) or bool(((turns.abs() - 1).abs().amax(-1) > room).any()):
        return None
    angles = turns.angle()
    speed = angles[1] / SHIFTS[1]
    for row in range(2, len(SHIFTS)):
        whole = torch.round((speed * SHIFTS[row] - angles[row]) / (2 * math.pi))
        speed = (angles[row] + 2 * math.pi * whole) / SHIFTS[row]
    return tuple(abs(value) for value in speed.tolist())
