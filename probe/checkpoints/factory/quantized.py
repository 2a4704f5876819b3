"""Linears that round: transformers' own quantiser puts them into a twin whose config names one, as into a checkpoint.

The weights of linears that were rounded before they were saved are rounded here as such a checkpoint's are: three
values a weight, and one scale a matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from transformers.quantizers import AutoHfQuantizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def replace_linears(model: PreTrainedModel) -> None:
    """Puts the quantiser's linears in place of the model's, before it is filled; nothing where no config names one."""
    named = getattr(model.config, "quantization_config", None)
    if named:
        AutoHfQuantizer.from_config(named, pre_quantized=True).preprocess_model(model)


def round_weights(model: nn.Module) -> None:
    """Rounds the filled weight of every linear that has a scale for it, in place: each to -1, 0 or 1, with the mean of
    the magnitudes as the scale.
    """
    for module in model.modules():
        scale = dict(module.named_buffers(recurse=False)).get("weight_scale")
        if isinstance(module, nn.Linear) and scale is not None:
            weight = module.weight.double()  # a mean in float32 depends on the processor in its last digit
            mean = weight.abs().mean()
            module.weight.data.copy_((weight / mean).round().clamp(-1, 1))
            scale.copy_(torch.full_like(scale, float(mean)))
