"""Lively weights for any model of transformers: random, unit-scale, nothing accidentally 0, 1 or equal.

The numbers come from `probe.checkpoints.fill.uniform`: each tensor's from its name alone. What a tensor's numbers are
scaled by is read off its owner (an embedding, a norm, a linear map and what it sums over) and, for parameters that a
model's own code holds, off their shape, their names and the value that the constructor gave them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from probe.checkpoints.fill import uniform

if TYPE_CHECKING:
    from transformers import PreTrainedModel

UNIT = math.sqrt(3.0)
"""Half-width of the uniform distribution of unit variance."""

TIED = 2.5
"""Scale of the logits where one matrix is embedding and head."""

LEFT = "_computed_buffers"
"""Attribute of a filled model: the names of its buffers that were not filled."""

NAMED: tuple[tuple[str, tuple[float, float]], ...] = (
    (r"A_log$", (0.0, 1.0)),
    (r"(correction|expert)_bias$", (0.0, 0.2)),
    (r"balancing_biases$", (0.0, 0.05)),
    (r"qk_norm\.temp$", (2.0, 0.6)),
    (r"time_(mix|maa)", (0.5, 0.45)),
    (r"(^|\.)(in|out)put_(min|max)$", (0.0, 3.0)),
)
"""Center and half-width by a parameter's name: decays of a recurrence, biases that only tip a router's choice between
probabilities, a temperature, shares of a mixture of two tokens, bounds of a clip."""

GAINS: tuple[tuple[str, float], ...] = (
    (r"router|(\.|^)gate\.weight$|\.gate\.wg|score", 2.0),
    (r"down_proj|\.w2|c_proj|fc2|fc_out|dense_4h_to_h|wo\.|wo$", 2.0),
    (r"o_proj|out_proj|attention\.dense|o\.weight$", 1.5),
    (r"lm_head|embed_out", 2.0),
)
"""A linear map's scale beyond keeping a unit input at unit scale: averages and gated products are smaller."""


def fill(model: PreTrainedModel) -> None:
    """Gives every parameter, and every saved buffer that a checkpoint brings, its lively value, in place.

    Tied parameters are filled once, under the first name. Buffers that the model's code computes (rotary frequencies,
    masks, fixed decays) keep what it computed.
    """
    left = {name for name, buffer in model.named_buffers() if buffer.is_floating_point() and buffer.numel() > 1}
    head = model.get_output_embeddings()
    tied = None if head is None else head.weight
    seen: set[int] = set()
    for name, owner, tensor in _saved(model):
        left.discard(name)
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        if not tensor.is_floating_point():
            if tensor.dim() == 2:
                tensor.data.copy_(_choices(name, tensor.shape, owner.num_experts))
            continue
        center, half_width = _range(name, owner, tensor)
        if tied is not None and tensor is tied and isinstance(owner, nn.Embedding):
            half_width = UNIT * TIED / math.sqrt(tied.shape[1])
        tensor.data.copy_(uniform(name, tensor.shape) * half_width + center)
    model.__dict__[LEFT] = frozenset(left)


def computed(model: nn.Module) -> frozenset[str]:
    """Names of the buffers, of more than one number, that hold what a twin's class computed; empty where the model was
    not filled here."""
    return model.__dict__.get(LEFT, frozenset())


def _saved(model: nn.Module) -> Iterator[tuple[str, nn.Module, torch.Tensor]]:
    for prefix, module in model.named_modules():
        saved = [b for b in module._buffers if b not in module._non_persistent_buffers_set]
        for own in [*module._parameters, *(b for b in saved if _is_blank(b, module._buffers[b]))]:
            tensor = getattr(module, own)
            if tensor is not None:
                yield f"{prefix}.{own}" if prefix else own, module, tensor


def _is_blank(own: str, buffer: torch.Tensor | None) -> bool:
    """Whether a saved buffer waits for a checkpoint's values: a bias, or all of it equal, or never initialised.

    A single number other than 0 and 1 is a constant of the code.
    """
    if buffer is None or not buffer.numel() or buffer.dtype == torch.bool:
        return False
    if buffer.is_floating_point() and (re.search(r"bias(es)?$", own) or buffer.isnan().any()):
        return True
    first = buffer.flatten()[0]
    return bool((buffer == first).all()) and (buffer.numel() > 1 or first.item() in (0, 1))


def _choices(name: str, shape: torch.Size, experts: int) -> torch.Tensor:
    """A table of distinct experts for each token, [vocab, chosen]."""
    return uniform(name, torch.Size([shape[0], experts])).argsort(dim=1)[:, : shape[1]]


def _range(name: str, owner: nn.Module, tensor: torch.Tensor) -> tuple[float, float]:
    """Center and half-width of the uniform distribution a tensor is filled with."""
    own = name.rpartition(".")[2]
    for part, found in NAMED:
        if re.search(part, name):
            return found
    if isinstance(owner, nn.Embedding):
        scale = getattr(owner, "scalar_embed_scale", None) or getattr(owner, "embed_scale", None) or 1.0
        return 0.0, UNIT / float(scale)
    if sum(size > 1 for size in tensor.shape) <= 1:
        center = _center(own, owner, tensor)
        return center, abs(center) / 2 or 0.7
    if bool((tensor == 1).all()):
        return 1.0, 0.5
    return 0.0, UNIT * _gain(name) / math.sqrt(_fan_in(own, owner, tensor))


def _center(own: str, owner: nn.Module, tensor: torch.Tensor) -> float:
    """What a vector's values lie around: the constant that the constructor gave it, one for a gain, else zero."""
    first = tensor.flatten()[0].item()
    if isinstance(owner, (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)):
        return float(own == "weight")
    if own.endswith("scale") and (first == 0 or math.isnan(first)):
        return 1.0
    return first if bool((tensor == first).all()) else 0.0


def _gain(name: str) -> float:
    return next((gain for part, gain in GAINS if re.search(part, name)), 1.0)


def _fan_in(own: str, owner: nn.Module, tensor: torch.Tensor) -> int:
    """What a product with this tensor sums over."""
    if isinstance(owner, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return tensor[0].numel()
    if isinstance(owner, Conv1D):
        return tensor.shape[0]
    if tensor.dim() == 3:
        other = next((p for n, p in owner.named_parameters(recurse=False) if n != own and p.dim() == 3), None)
        if other is not None:
            return _expert_fan_in(own, tensor, other)
    return tensor.shape[-1]


def _expert_fan_in(own: str, tensor: torch.Tensor, other: torch.Tensor) -> int:
    """Experts are stored (expert, out, in) or (expert, in, out); the width both maps share on one side tells which."""
    up, down = (other, tensor) if "down" in own or own in ("w2", "output_linear") else (tensor, other)
    out_first = up.shape[2] == down.shape[1]
    return tensor.shape[2] if out_first else tensor.shape[1]
