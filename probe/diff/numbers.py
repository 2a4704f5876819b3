"""When two measured numbers are the same fact.

Two machines round sums in different orders, so a measured float may differ in its last digits while nothing has
changed. Whole numbers, texts and truth values must be equal; of floats see `same`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

RELATIVE = 5e-3
"""Share of the larger one by which two floats may differ: records round to at most four digits."""

NOISE = 1e-4
"""Floats of at most this size are rounding errors of values of size one; among themselves they are the same."""

_NUMBER = re.compile(r"(?<![\w.])-?\d(?:[\d,]*\d)?(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")


def same(before: Any, after: Any) -> bool:
    """Whether two JSON values state the same fact.

    Floats do where they differ by `RELATIVE` at most, or are both `NOISE`, or are neighbours in the last digit that
    both are given with and not both whole (0.28 and 0.29, as a value between the two may round either way).
    """
    if isinstance(before, dict) and isinstance(after, dict):
        return before.keys() == after.keys() and all(same(before[key], after[key]) for key in before)
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(same, before, after))
    if not (_is_number(before) and _is_number(after)):
        return type(before) is type(after) and bool(before == after)
    if before == after:
        return True
    if isinstance(before, int) and isinstance(after, int):
        return False
    apart = abs(before - after)
    if apart <= RELATIVE * max(abs(before), abs(after)) or max(abs(before), abs(after)) <= NOISE:
        return True
    whole = float(before).is_integer() and float(after).is_integer()
    return not whole and apart <= 1.01 * min(_step(before), _step(after))


def same_cells(before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether the rows of two pictures' cells say the same.

    Shares in percent may differ by one. Of cells that are 0 or 1 one in a hundred may differ, as what fades crosses its
    threshold a position earlier or later on another machine.
    """
    one, other = ([cells(row) for row in rows] for rows in (before, after))
    pairs = [pair for rows in zip(one, other, strict=False) for pair in zip(*rows, strict=False)]
    if list(map(len, one)) != list(map(len, other)) or not all(map(str.isdecimal, (c for pair in pairs for c in pair))):
        return [*before] == [*after]
    apart = [abs(int(a) - int(b)) for a, b in pairs]
    if any(" " in row for row in before):
        return max(apart, default=0) <= 1
    return sum(apart) * 100 <= len(apart)


def cells(row: str) -> list[str]:
    """The cells of a row: apart by spaces, or a character each."""
    return row.split() if " " in row else list(row)


def neighbours(before: float, after: float) -> bool:
    """Whether two numbers of one significant digit are the same or next to each other, as rounding may make them."""
    if before == after:
        return True
    return min(abs(before), abs(after)) > 0 and abs(before - after) <= 1.01 * min(_step(before), _step(after))


def same_words(before: str | None, after: str | None) -> bool:
    """Whether two sentences say the same: the same words, and numbers that are the same fact."""
    if before is None or after is None or before == after:
        return before == after
    if _NUMBER.sub("#", before) != _NUMBER.sub("#", after):
        return False
    return all(
        same(_read(one), _read(other)) for one, other in zip(*map(_NUMBER.findall, (before, after)), strict=True)
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _step(number: float) -> float:
    """One unit in the last significant digit that a number is written with."""
    if not number or not math.isfinite(number):
        return 0.0
    given = repr(float(number)).partition("e")[0].replace("-", "").replace(".", "").strip("0")
    return float(10.0 ** (math.floor(math.log10(abs(number))) - len(given) + 1))


def _read(text: str) -> int | float:
    plain = text.replace(",", "")
    return int(plain) if plain.lstrip("-").isdigit() else float(plain)
