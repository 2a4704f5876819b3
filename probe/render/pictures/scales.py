"""Scales of a picture: where a number stands in pixels, and which numbers are written beside an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.ticker import MaxNLocator

WIDE = 30
"""From this ratio of the largest number to the smallest a scale is one of powers of ten."""


@dataclass(frozen=True)
class Scale:
    """From numbers between ``low`` and ``high`` to pixels between ``first`` and ``last``."""

    low: float
    high: float
    first: float
    last: float
    powers: bool

    def at(self, number: float) -> float:
        low, high, here = (math.log10(n) if self.powers else n for n in (self.low, self.high, number))
        return self.first + (self.last - self.first) * (here - low) / ((high - low) or 1)

    def ticks(self, most: int = 4) -> list[float]:
        """Round numbers within the scale."""
        if not self.powers:
            return [float(tick) for tick in MaxNLocator(most).tick_values(self.low, self.high) if self._holds(tick)]
        low, high = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        step = max(1, -(-(high - low) // most))
        return [10.0**power for power in range(high, low - 1, -step)]

    def _holds(self, tick: float) -> bool:
        room = 1e-9 * (self.high - self.low)
        return self.low - room <= tick <= self.high + room


def scale(numbers: Sequence[float], first: float, last: float, *, zero: bool = True) -> Scale:
    """A scale that holds all numbers.

    Args:
        numbers: at least one.
        first: the lowest one's place in pixels.
        last: the highest one's.
        zero: start from zero where the scale is no one of powers.
    """
    low, high = min(numbers), max(numbers)
    if low > 0 and high / low >= WIDE:
        return Scale(10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high) - 1e-9), first, last, True)
    room = 0.06 * ((high - low) or abs(high) or 1)
    return Scale(min(0.0, low) if zero else low - room, high + (0 if zero else room), first, last, False)


def written(number: float) -> str:
    """A tick's number, short: powers of ten from 10000 on and below 0.001 as `10⁻⁴`."""
    power = math.log10(number) if number > 0 else 0.0
    if number > 0 and abs(power - round(power)) < 1e-9 and not -3 <= power < 4:
        return "10" + str(round(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{number:g}"
