"""The room inside a sublayer's box, and how much of it a drawing has filled."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Room:
    """A box's inner width and where its inside begins. ``drift``: how far right its result leaves it."""

    left: float
    right: float
    top: float
    narrow: bool
    drift: float = 0


@dataclass(frozen=True)
class Filled:
    """How far down the inside reaches, and where the sublayer's result leaves it."""

    bottom: float
    exit: tuple[float, float] | None
