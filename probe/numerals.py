"""How a number is written wherever a person reads it: pages, differences, the command line. Imports nothing."""

from __future__ import annotations

import re

GROUPED = 10_000
"""From here on a number's digits stand in groups of three."""


def number(value: float, digits: int | None = 4) -> str:
    """A number as every page writes it: ``10,000``, ``1536``, ``0.25``, ``2e-5``.

    Args:
        value: an integer is written whole.
        digits: the significant ones of a number that is no integer; None keeps all.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    if isinstance(value, int) or GROUPED <= abs(value) < 1e9 and digits is not None:
        return f"{value:,.0f}" if abs(value) >= GROUPED else str(value)
    text = repr(value) if digits is None else f"{value:.{digits}g}"
    return re.sub(r"e([-+])0*", lambda power: "e" + power[1].replace("+", ""), text)


def unit(value: float, many: str | None) -> str:
    """A unit as it follows its number: ``blocks``, and ``block`` after one; nothing where there is none."""
    parts = (many or "").split(" of ")
    return " of ".join(part.removesuffix("s") if value == 1 else part for part in parts)
