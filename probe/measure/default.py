"""The attention implementation of a default load, and switching to another one for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def default_attention(module: Any) -> str:
    """The implementation transformers picks for this class when a load names none."""
    return str(module.get_correct_attn_implementation(None))


@contextmanager
def implementation(module: torch.nn.Module, attn: str) -> Iterator[None]:
    """Run under another attention implementation; the one before is put back."""
    model: Any = module
    before = model.config._attn_implementation
    model.set_attn_implementation(attn)
    try:
        yield
    finally:
        model.set_attn_implementation(before)
