"""Models shared by the tests of the standard layer: each twin is built once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from probe.checkpoints import load, targets
from probe.standard import StandardizedTransformer


@cache
def build(family: str, twin: str, attn: str = "eager") -> StandardizedTransformer:
    target = next(target for target in targets(family) if target.id == twin)
    return StandardizedTransformer(load(target, attn=attn))


@pytest.fixture
def twin() -> Callable[..., StandardizedTransformer]:
    """A twin by family, name and attention implementation."""
    return build
