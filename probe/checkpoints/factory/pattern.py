"""Which blocks a twin keeps: the shortest stack in which every kind of the published one stands at least twice.

A config tells its blocks' kinds in lists with an entry a block (`layer_types`), in lists of block indices
(`mlp_only_layers`), in counts of leading or trailing blocks (`first_k_dense_replace`, `num_kv_shared_layers`). All are
read as columns of one table; blocks that agree in all columns are of one kind.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

UNIFORM = 3
"""Blocks of a twin whose config tells no kinds apart: a first, an inner and a last one."""

DEPTH = re.compile(r"^(num_hidden_layers|n_layers?|num_layers|num_blocks|depth)$")
INDICES = re.compile(
    r"^(mlp_only_layers|moe_layers|full_attn_idxs|attn_layer_indices|hybrid_layer_ids|local_layer_ids)$"
)
LEADING = re.compile(r"^(first_k_dense_replace|num_dense_layers)$")
TRAILING = re.compile(r"^num_kv_shared_layers$")


def choose(kinds: Sequence[Hashable]) -> list[int]:
    """Indices of the published blocks to keep, in order; one that stands alone is named twice.

    Runs of one kind are cut to one block, so that alternation survives, and the shortest prefix that shows every kind
    is taken; where a kind comes late, the first two blocks of each kind.
    """
    if len(set(kinds)) == 1:
        return list(range(min(UNIFORM, len(kinds)))) if len(kinds) > 1 else [0, 0]
    runs = [i for i, kind in enumerate(kinds) if i == 0 or kinds[i - 1] != kind]
    best: list[int] | None = None
    for end in range(1, len(runs) + 1):
        prefix = runs[:end]
        count = Counter(kinds[i] for i in prefix)
        if len(count) == len(set(kinds)):
            doubled = sorted(prefix + [i for i in prefix if count[kinds[i]] == 1])
            if best is None or len(doubled) <= len(best):
                best = doubled
    assert best is not None
    seen: Counter[Hashable] = Counter()
    early = []
    for i, kind in enumerate(kinds):
        seen[kind] += 1
        if seen[kind] <= 2:
            early.append(i)
    early = sorted(early + [i for i in early if seen[kinds[i]] == 1])
    return best if len(best) <= len(early) + 2 else early


def columns(values: dict[str, Any], depth: int) -> dict[str, list[Any]]:
    """What a config's entries say of each block: name -> one entry a block; empty where they say nothing."""
    found: dict[str, list[Any]] = {}
    for name, value in values.items():
        if isinstance(value, (list, tuple)):
            if INDICES.search(name) and all(isinstance(v, int) and v < depth for v in value):
                found[name] = [i in value for i in range(depth)]
            elif len(value) == depth and depth > 1 and not isinstance(value[0], (list, dict)):
                found[name] = list(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            if LEADING.search(name):
                found[name] = [i < value for i in range(depth)]
            elif TRAILING.search(name):
                found[name] = [i >= depth - value for i in range(depth)]
    return found


def kept(name: str, column: Sequence[Any], chosen: Sequence[int]) -> Any:
    """A column's entry in the twin's config, for the blocks that were chosen."""
    picked = [column[i] for i in chosen]
    if INDICES.search(name):
        return [i for i, member in enumerate(picked) if member]
    return sum(picked) if LEADING.search(name) or TRAILING.search(name) else picked
