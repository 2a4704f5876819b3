"""The attention implementation of a default load, and switching to another one for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def default_attention(module: Any) -> str:
    """The implementation transformers picks for this class when a load names none."""
    return str(module.get_correct_attn_implementation(None))


def switch(module: Any, attn: str) -> None:
    """Run the text model and the tower under ``attn`` from now on; other towers (audio) keep what they have."""
    if not follows_interface(module):
        for part in module.modules():
            if hasattr(part, "config"):
                part.config._attn_implementation = attn
        return
    parts = [part for part in ("text_config", "vision_config") if getattr(module.config, part, None) is not None]
    module.set_attn_implementation({"": attn, **dict.fromkeys(parts, attn)} if parts else attn)


def follows_interface(module: Any) -> bool:
    """Whether transformers switches this class's attention; one that asks its config in its own forward it does not."""
    return bool(type(module)._can_set_attn_implementation())


@contextmanager
def implementation(module: torch.nn.Module, attn: str) -> Iterator[None]:
    """Run under another attention implementation; the one before is put back."""
    model: Any = module
    before = str(model.config._attn_implementation)
    switch(model, attn)
    try:
        yield
    finally:
        switch(model, before)
