"""Faults of the installed transformers that stop a forward, mended from outside until a release does.

A test runs each forward without its repair: one that has become needless fails there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def repair(config: PreTrainedConfig) -> None:
    """Mends what this config's class needs. Calling it again changes nothing."""
    if config.model_type == "llama4":
        _llama4_image_outputs()
    if getattr(config, "quantization_config", None):
        _uncompiled()


def _uncompiled() -> None:
    """The linears of some quantisers compile their rounding when they are first called, which needs a compiler for C++
    and a minute. The same code runs without.
    """
    import torch

    torch.compiler.set_stance("force_eager")


def _llama4_image_outputs() -> None:
    """Llama 4's wrapper copies `image_outputs` from its text model's output, whose class has no such field."""
    from transformers.modeling_outputs import MoeCausalLMOutputWithPast

    if not hasattr(MoeCausalLMOutputWithPast, "image_outputs"):
        MoeCausalLMOutputWithPast.image_outputs = None
