"""nnsight finds the function that a decorator wraps in the decorator's source, which it reads anew for every module of
every model; here each is read once a process.
"""

from __future__ import annotations

from functools import lru_cache

from nnsight.intervention import source


def parse_once() -> None:
    """Have nnsight's search keep the trees that it parses and only reads; what it compiles it still parses afresh."""
    kept = lru_cache(maxsize=None)(source.source_tree)
    source.peel_index = source.function_like(source.peel_index, source.peel_index.__code__, None, source_tree=kept)
