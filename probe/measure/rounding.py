"""Rounding, so that two machines write the same numbers."""

from __future__ import annotations

import math


def one_digit(number: float, *, up: bool = False) -> float:
    """A number with one significant digit; rounded up where ``up`` is set."""
    if number == 0 or not math.isfinite(number):
        return number if math.isfinite(number) else math.inf
    exponent = math.floor(math.log10(abs(number)))
    scaled = number / 10**exponent
    digit = math.ceil(scaled - 1e-9) if up else round(scaled)
    return float(f"{digit}e{exponent}")


def digits(number: float, count: int = 4) -> float:
    """A number with ``count`` significant digits."""
    return float(f"{number:.{count}g}")
