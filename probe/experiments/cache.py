"""What a cache holds after a forward: bytes a token, blocks that store nothing, and blocks that keep a window only."""

from __future__ import annotations

from typing import Any

import torch

from ..measure.run import Run
from ..schema import Fact
from .base import some
from .extra import LENGTH, decoder, token_ids
from .forwards import AFFORDABLE, masks

FEW = 4
"""Positions of the short prompt: fewer than any window."""


def stored(run: Run, length: int) -> list[tuple[int, int]]:
    """For each block the bytes a cache holds after a prompt of ``length`` tokens, and the number of positions kept."""
    ids = token_ids(run, length)
    with torch.no_grad():
        out = decoder(run)(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=True)
    cache: Any = getattr(out, "cache", None) or out.past_key_values
    found = []
    for layer in cache.layers:
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        if keys is None or values is None or keys.numel() == 0:
            found.append((0, 0))
        else:
            found.append((keys.numel() * keys.element_size() + values.numel() * values.element_size(), keys.shape[-2]))
    return found + [(0, 0)] * (len(run.text) - len(found))


def cache_facts(run: Run) -> list[Fact]:
    """Bytes a token on a short prompt, and by how much the cache still grows where windows are full."""
    few = stored(run, FEW)
    total = sum(size for size, _ in few) // FEW
    empty = [index for index, (size, _) in enumerate(few) if size == 0]
    dtype = str(run.dtype).removeprefix("torch.")
    storing = (
        "every block stores its keys and values"
        if not empty
        else f"{some(empty, len(few))} store nothing" + (", since they borrow" if len(empty) > 1 else "")
    )
    facts = [
        Fact(
            name="kv_cache_bytes_per_token",
            label="Cache a token",
            value=total,
            unit="bytes",
            statement=f"A cache of this load holds {total:,} bytes a token ({dtype}): {storing}.",
        )
    ]
    length = max(LENGTH, masks(run).length)
    if length + FEW > AFFORDABLE + LENGTH or masks(run).unseen:
        return facts
    before, after = stored(run, length), stored(run, length + FEW)
    full = [index for index, (one, two) in enumerate(zip(before, after, strict=True)) if one[0] and one == two]
    if full:
        growth = (sum(size for size, _ in after) - sum(size for size, _ in before)) // FEW
        kept = sorted({before[index][1] for index in full})
        facts.append(
            Fact(
                name="kv_cache_bytes_per_token_past_window",
                label="Cache a token, past the window",
                value=growth,
                unit="bytes",
                statement=(
                    f"Once {some(full, len(few))} hold {' or '.join(map(str, kept))} positions, their part of the "
                    "cache stops growing: "
                    f"a further token adds {growth:,} bytes."
                ),
            )
        )
    return facts
