"""Lively weights for the tiny twins: random, unit-scale, nothing accidentally 0, 1 or equal.

A tensor's numbers are the bytes of SHAKE-256 of its name, so they depend on no generator, no order of creation and no
machine, and adding a module changes no other module's weights. Scales are chosen so that activations stay near one:
a matrix is divided by the root of what it sums over, gains lie around 1, biases and embeddings around 0.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SEED = "lively twin 1"

_UNIT = math.sqrt(3.0)
"""Half-width of the uniform distribution of unit variance."""


def uniform(name: str, shape: torch.Size) -> torch.Tensor:
    """float64 numbers in (-1, 1), never 0, from the name alone."""
    count = shape.numel()
    data = bytearray(hashlib.shake_256(f"{SEED}\n{name}".encode()).digest(4 * max(count, 1)))
    words = torch.frombuffer(data, dtype=torch.int32)[:count]
    return ((words.to(torch.float64) + 0.5) * 2.0**-31).reshape(shape)


def fill(model: PreTrainedModel) -> None:
    """Gives every parameter and every saved buffer of a model its lively value, in place.

    Tied parameters are filled once, under the first name. Buffers that are not saved (rotary frequencies) keep what
    the model's own code computed.
    """
    head = model.get_output_embeddings()
    seen: set[int] = set()
    for name, owner, tensor in _saved(model):
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        center, half_width = _range(name, owner, tensor)
        if tensor is head.weight and isinstance(owner, nn.Embedding):
            half_width = _UNIT * _TIED / math.sqrt(tensor.shape[1])
        tensor.data.copy_(uniform(name, tensor.shape) * half_width + center)


def _saved(model: nn.Module) -> Iterator[tuple[str, nn.Module, torch.Tensor]]:
    for prefix, module in model.named_modules():
        names = [*module._parameters, *(b for b in module._buffers if b not in module._non_persistent_buffers_set)]
        for own in names:
            tensor = getattr(module, own)
            if tensor is not None:
                yield f"{prefix}.{own}" if prefix else own, module, tensor


def _range(name: str, owner: nn.Module, tensor: torch.Tensor) -> tuple[float, float]:
    """Center and half-width of the uniform distribution a tensor is filled with."""
    own = name.rpartition(".")[2]
    if own in _BOUNDS:
        return _BOUNDS[own]
    if isinstance(owner, nn.Embedding):
        return 0.0, _UNIT / float(getattr(owner, "scalar_embed_scale", 1.0))
    if own == "std_scale" or (tensor.dim() <= 1 and (isinstance(owner, nn.LayerNorm) and own == "weight")):
        return 1.0, 0.5
    if tensor.dim() <= 1:
        around_one = not isinstance(owner, (nn.Linear, nn.Conv2d, nn.LayerNorm)) and bool((tensor == 1).all())
        return (1.0, 0.5) if around_one else (0.0, 0.7)
    if isinstance(owner, (nn.Linear, nn.Conv2d)):
        return 0.0, _UNIT * _gain(name) / math.sqrt(tensor[0].numel())
    if tensor.dim() == 3 and own in ("gate_up_proj", "down_proj"):
        return 0.0, _UNIT * _gain(name) / math.sqrt(_expert_fan_in(owner, tensor))
    if own.endswith("projection_weight"):
        return 0.0, _UNIT / math.sqrt(tensor.shape[0])
    return 0.0, _UNIT


_BOUNDS = {
    "input_min": (-2.0, 0.4),
    "input_max": (2.0, 0.4),
    "output_min": (-2.0, 0.4),
    "output_max": (2.0, 0.4),
}
"""Clipping bounds: some of a unit-scale activation lies beyond them, most of it within."""


_TIED = 2.5
"""Scale of the logits, and of a multiplied embedding, where one matrix is embedding and head."""


def _gain(name: str) -> float:
    """What a product's scale is multiplied with, beyond keeping a unit input at unit scale."""
    for part, gain in _GAINS.items():
        if part in name:
            return gain
    return 1.0


_GAINS = {
    "router.proj": 8.0,  # its input is divided by the root of the hidden size
    "router": 2.0,
    "down_proj": 2.0,  # a gated product of unit inputs is below unit scale
    "o_proj": 1.5,  # so is an average over values
    "lm_head": 2.0,
}


def _expert_fan_in(owner: nn.Module, tensor: torch.Tensor) -> int:
    """What an expert's product sums over; experts are stored (expert, out, in) or (expert, in, out)."""
    gate_up, down = owner.gate_up_proj, owner.down_proj
    out_first = gate_up.shape[1] == 2 * down.shape[2]
    return tensor.shape[2] if out_first else tensor.shape[1]
