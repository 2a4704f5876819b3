"""What a cache holds after a forward: bytes a token, blocks that store nothing, and blocks that keep a window only."""

from __future__ import annotations

from ..measure.run import Run
from ..schema import Fact
from .base import some
from .extra import forward, token_ids
from .forwards import GROWTH, Stored, contents, masks

FEW = 4
"""Positions of the short prompt: fewer than any window."""


def cache_facts(run: Run) -> list[Fact]:
    """Bytes a token on a short prompt, and by how much the cache still grows where windows are full."""
    out = forward(run, token_ids(run, FEW), use_cache=True)
    held = contents(getattr(out, "cache", None) or out.past_key_values, len(run.text))
    total = sum(size for size, _ in held) // FEW
    empty = [index for index, (size, _) in enumerate(held) if size == 0]
    storing = "every block stores its keys and values"
    if empty:
        verb = "stores nothing of its own" if len(empty) == 1 else "store nothing of their own"
        storing = f"{some(empty, len(held))} {verb}"
    dtype = str(run.dtype).removeprefix("torch.")
    first = Fact(
        name="kv_cache_bytes_per_token",
        label="Cache a token",
        value=total,
        unit="bytes",
        statement=f"A cache of this load holds {total:,} bytes a token ({dtype}): {storing}.",
    )
    full = _full(*masks(run).caches)
    return [first, _past_windows(run, full)] if full else [first]


def _full(before: Stored, after: Stored) -> list[int]:
    """The blocks whose part of the cache did not grow with further tokens."""
    return [index for index, (one, two) in enumerate(zip(before, after, strict=True)) if one[0] and one == two]


def _past_windows(run: Run, full: list[int]) -> Fact:
    before, after = masks(run).caches
    growth = (sum(size for size, _ in after) - sum(size for size, _ in before)) // GROWTH
    kept = " or ".join(str(count) for count in sorted({before[index][1] for index in full}))
    where = some(full, len(before))
    return Fact(
        name="kv_cache_bytes_per_token_past_window",
        label="Cache a token, past the window",
        value=growth,
        unit="bytes",
        statement=f"Once {where} hold {kept} positions, their part stops growing: a token then adds {growth:,} bytes.",
    )
