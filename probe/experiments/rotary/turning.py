"""How an attention turns its queries: which dimensions move with the position, in which pairs, and how fast.

Queries of one input at several positions are compared (:func:`probe.experiments.rotary.positions.tracks`). A pair of
dimensions that turns is a complex number multiplied by one of modulus one; its angle per position is the pair's
frequency. A norm's gain behind the rotation makes an ellipse of the circle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from ...instruments.extra import once
from ...measure.run import Run
from ..answers import tolerance
from .positions import tracks

EPSILON = 2e-7
"""Rounding of an angle in float32, relative to its size: a position times a frequency of at most one."""

SERIES = 0.02
"""Largest distance of a frequency from a geometric series, relative to it."""

SEEN = 3e-3
"""Size of a dimension, relative to the largest, below which rounding hides how it turns."""

MOVES = 5e-5
"""Change of a dimension, relative to its size, from which it is taken to move in float32."""

Style = Literal["halves", "interleaved"]
Extent = Literal["none", "whole", "leading", "trailing", "both halves", "other"]


@dataclass(frozen=True)
class Rotary:
    """The rotation of one block's queries.

    Attributes:
        width: width of a head.
        turning: the dimensions that change with the position.
        extent: where they lie.
        style: which dimensions turn together; None where none turn, or in no pairs known here.
        frequencies: angle a position of each pair in radians, in the order of the pairs; NaN where it was not seen.
        stretched: whether the pairs turn on ellipses: gains that differ within a pair multiply behind the rotation.
        backwards: whether a growing position turns pairs from their second number to their first.
    """

    width: int
    turning: tuple[int, ...]
    extent: Extent
    style: Style | None
    frequencies: tuple[float, ...]
    stretched: bool = False
    backwards: bool = False

    @property
    def share(self) -> float:
        return len(self.turning) / self.width

    def base(self) -> float | None:
        """The base θ of frequencies ``f · θ^(-2i / w)``, fitted; w is the width of the head, or of its part that turns.

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
        return len(self.turning) if self.extent in ("leading", "trailing") else self.width


@once
def rotaries(run: Run) -> list[Rotary | None]:
    """The rotation of every block; None where its queries could not be read."""
    every = tracks(run)
    return [None if track is None else rotary(track.queries, track.shifts, tolerance(run)) for track in every]


def rotary(rows: torch.Tensor, shifts: tuple[int, ...], close: float) -> Rotary:
    """From queries ``[shifts, heads, samples, width]`` of one input at the positions ``shifts``.

    A dimension in which no query has anything (a norm's gain of zero) tells nothing, and is taken with the others.
    """
    width = rows.shape[-1]
    size = rows[0].abs().amax((0, 1))
    seen = size > SEEN * size.max()
    moves = (rows[1:] - rows[:1]).abs().amax(dim=(0, 1, 2)) > (MOVES if close < 1e-3 else close) * size
    moving, still = set((moves & seen).nonzero().flatten().tolist()), set((~moves & seen).nonzero().flatten().tolist())
    level = rows * (rows[:1].norm(dim=-1, keepdim=True) / rows.norm(dim=-1, keepdim=True).clamp_min(1e-30))
    if not moving or float((level - level[:1]).abs().max()) <= close * float(rows.abs().max()):
        return Rotary(width, (), "none", None, ())
    extent, turning = _extent(moving, still, width)
    for stretched in (False, True):
        for style, pairs in _pairings(turning):
            for queries in (rows, level):
                found = _angles(queries, shifts, pairs, close, stretched)
                if found is not None:
                    speeds = tuple(abs(speed) for speed in found)
                    backwards = all(not speed > 0 for speed in found) and any(speed < 0 for speed in found)
                    return Rotary(width, turning, extent, style, speeds, stretched, backwards)
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
        ("trailing", tuple(range(min(moving) - min(moving) % 2, width))),
    )
    for extent, turning in parts:
        if not still & set(turning):
            return extent, turning
    return "other", tuple(sorted(moving))


def _pairings(turning: tuple[int, ...]) -> list[tuple[Style, list[tuple[int, int]]]]:
    """The ways in which the turning dimensions can be paired."""
    if len(turning) % 2:
        return []
    half = len(turning) // 2
    found: list[tuple[Style, list[tuple[int, int]]]] = [
        ("halves", list(zip(turning[:half], turning[half:], strict=True)))
    ]
    neighbours = list(zip(turning[::2], turning[1::2], strict=True))
    if all(right == left + 1 for left, right in neighbours):
        found.append(("interleaved", neighbours))
    return found


def _angles(
    rows: torch.Tensor, shifts: tuple[int, ...], pairs: list[tuple[int, int]], close: float, stretched: bool
) -> tuple[float, ...] | None:
    """The angle a position of each pair, with its sign, or None where a pair does not turn as one number, on a circle
    or stretched to an ellipse: ``rows`` is ``[shifts, heads, samples, width]``.
    """
    first, second = (list(side) for side in zip(*pairs, strict=True))
    left, right = rows[..., first].double(), rows[..., second].double()
    room = close + EPSILON * torch.tensor(shifts, dtype=left.dtype, device=left.device)
    numbers = torch.complex(left, right * _gains(left, right, room)[None, :, None] if stretched else right)
    still = numbers[:1]
    sizes = still.abs()
    largest = sizes.amax()
    turns = (numbers * still.conj()).sum((1, 2)) / sizes.square().sum((1, 2)).clamp_min(1e-30)
    error = (numbers - turns[:, None, None] * still).abs().amax(dim=(1, 2, 3)) / largest
    if bool((error > room).any()):
        return None
    return _speeds(turns.angle(), sizes.amax(dim=(0, 1, 2)) > SEEN * largest, shifts)


def _gains(left: torch.Tensor, right: torch.Tensor, room: torch.Tensor) -> torch.Tensor:
    """For each head and pair the ratio of the gains that its two dimensions were multiplied with after they turned.

    Each row is fitted as a linear map of the first; a turn between two gains a and b has ``-a/b`` and ``b/a`` times the
    angle's sine off its diagonal. The row is taken in which that stands out most from its rounding, ``room``.
    """
    given = torch.stack([left[0], right[0]], -1).transpose(1, 2)
    ratios, strongest = torch.ones_like(left[0, :, 0]), torch.zeros_like(left[0, :, 0])
    inverse = torch.linalg.pinv(given)
    for row in range(1, len(left)):
        maps = inverse @ torch.stack([left[row], right[row]], -1).transpose(1, 2)
        up, down = maps[..., 1, 0], maps[..., 0, 1]
        strength = -(up * down) / room[row] ** 2
        ratios = torch.where(strength > strongest, (-up / down).clamp_min(0).sqrt(), ratios)
        strongest = torch.maximum(strength, strongest)
    return ratios


def _speeds(angles: torch.Tensor, known: torch.Tensor, shifts: tuple[int, ...]) -> tuple[float, ...]:
    """Angle a position from the angles at growing shifts, each of which the ones before it unwind."""
    speed = angles[1] / shifts[1]
    for row in range(2, len(shifts)):
        whole = torch.round((speed * shifts[row] - angles[row]) / (2 * math.pi))
        speed = (angles[row] + 2 * math.pi * whole) / shifts[row]
    return tuple(value if seen else math.nan for value, seen in zip(speed.tolist(), known.tolist(), strict=True))
