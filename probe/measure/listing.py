"""Parts of a sentence in a row."""

from __future__ import annotations

from collections.abc import Sequence


def listed(parts: Sequence[str], last: str = "and") -> str:
    """``a``, ``a and b``, ``a, b and c``; nothing for no parts.

    Args:
        last: what stands before the last part.
    """
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} {last} {parts[-1]}"
