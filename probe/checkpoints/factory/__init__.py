"""Twins for every decoder of the installed transformers: its real class, made small, with lively weights.

A twin is shrunk from a published config where the project keeps one of its family, else from the class's defaults; what
generic shrinking cannot know stands in `adjust`, a line and a reason for each class. The functions below import torch
and transformers when they are called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

UNBUILDABLE: dict[str, str] = {}
"""Decoders without a twin, with the reason."""


def decoders() -> list[str]:
    """model_type of every text decoder that transformers has, sorted."""
    from probe.checkpoints.factory import sources

    return sources.decoders()


def classes() -> dict[str, str]:
    """The class that generates text for each of `decoders`, by name."""
    from probe.checkpoints.factory import sources

    return {model_type: sources.class_name(model_type) for model_type in sources.decoders()}


def unbuildable() -> dict[str, str]:
    """The decoders that have no twin: model_type -> reason."""
    return dict(UNBUILDABLE)


def default_twins(model_type: str) -> list[str]:
    """Names of a decoder's twins: ``tiny``, and one more for each other kind of its published checkpoints."""
    from probe.checkpoints.factory import sources

    return [] if model_type in UNBUILDABLE else list(sources.twins(model_type))


def config_source(model_type: str, name: str = "tiny") -> str:
    """What a twin is shrunk from, in words."""
    from probe.checkpoints.factory import sources

    stem = sources.twin(model_type, name)
    return f"shrunk from families/configs/{stem}.json" if stem else "shrunk from the class's defaults"


def build_default(
    model_type: str, name: str = "tiny", *, attn: str = "eager", overrides: Mapping[str, Any] | None = None
) -> nn.Module:
    """A twin on the CPU: real class, lively weights, float32, eval mode, no gradients.

    Args:
        attn: attention implementation.
        overrides: config values to change, dotted below the root (``text_config.sliding_window``); the twin then has
            no pinned digest.

    Raises:
        ProbeError: transformers has no such decoder, or it has no twin of that name.
    """
    from probe.checkpoints.factory import build

    return build.build(model_type, name, attn=attn, overrides=overrides)


def default_inputs(module: nn.Module) -> dict[str, Any]:
    """Keyword arguments of a twin's forward: a prompt of 35 tokens [1, 35], longer than any window or chunk, without
    cache."""
    from probe.checkpoints.factory import build

    return build.inputs(module)
