"""How the values of a record's fields are written in a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from probe.numerals import number

_LONGEST = 160
_DIGEST = re.compile("[0-9a-f]{64}")


def spans(numbers: Sequence[int]) -> str:
    """Block indices in few words: ``block 3``, ``blocks 0–3, 5``, ``no block``."""
    if not numbers:
        return "no block"
    runs: list[list[int]] = []
    for block in sorted(numbers):
        if runs and block == runs[-1][1] + 1:
            runs[-1][1] = block
        else:
            runs.append([block, block])
    said = ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in runs)
    return f"block{'' if len(numbers) == 1 else 's'} {said}"


def blocks_or_all(numbers: Sequence[int] | None) -> str:
    """`spans`, where None stands for no property of blocks."""
    return "all of the model" if numbers is None else spans(numbers)


def shown(value: Any) -> str:
    """A JSON value as code, cut where it is long."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return code(number(value, None))
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if _DIGEST.fullmatch(text):
        text = f"{text[:12]}…"
    return code(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")


def code(text: str) -> str:
    """Text as Markdown code on one line, whatever is in it."""
    plain = " ".join(text.split()) or " "
    if "`" not in plain:
        return f"`{plain}`"
    longest = max(len(run) for run in "".join(c if c == "`" else " " for c in plain).split())
    fence = "`" * (longest + 1)
    return f"{fence} {plain} {fence}"


def quoted(text: str | None) -> str:
    """A sentence in quotation marks, cut where it is long."""
    if text is None:
        return "nothing"
    plain = " ".join(text.split()).replace("<", "&lt;")
    return f"“{plain if len(plain) <= 2 * _LONGEST else f'{plain[: 2 * _LONGEST - 1]}…'}”"


def listed(names: Sequence[str], most: int = 4) -> str:
    """``a, b, c and 5 more``."""
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def counted(number: int, word: str) -> str:
    """``1 family``, ``3 families``."""
    plural = f"{word.removesuffix('y')}ies" if word.endswith("y") else f"{word}s"
    return f"{number} {word if number == 1 else plural}"
