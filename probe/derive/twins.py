"""Tiny twins of the families without a module, each built and derived once a process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..checkpoints import Loaded, Target, load
from .default import derived


@dataclass(frozen=True)
class Twin:
    """A built twin, and the default family that one run of it gave."""

    loaded: Loaded
    family: Any


@lru_cache(maxsize=64)
def twin(family: str, name: str) -> Twin:
    """A tiny twin under eager attention.

    Raises:
        ProbeError: its wiring or its places cannot be derived; the message says what stood in the way.
    """
    loaded = load(Target(family, name, "tiny"), attn="eager")
    return Twin(loaded, derived(loaded))


def forget() -> None:
    """Build and derive twins anew from now on."""
    twin.cache_clear()
