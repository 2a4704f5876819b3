"""Content digests: of a model's weights, of a config."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import nn


def of_weights(module: nn.Module, computed: Collection[str] = ()) -> str:
    """sha256 of the state dict: names in sorted order, each with dtype, shape and bytes.

    A tensor with several names (a tied head) is hashed once, under its first name; the others name that one.

    Args:
        computed: names of buffers that the class computes itself: their bytes are left out, since the last digits of an
            exponential are the processor's.
    """
    sha = hashlib.sha256()
    first: dict[tuple[int, int], str] = {}
    for name, tensor in sorted(module.state_dict().items()):
        if tensor.is_meta:
            tensor = _offloaded(module, name)
        key = (tensor.data_ptr(), tensor.numel())
        if tensor.numel() and key in first:
            sha.update(f"{name} = {first[key]}\n".encode())
            continue
        first[key] = name
        sha.update(f"{name} {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}\n".encode())
        if name in computed:
            continue
        sha.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def _offloaded(module: nn.Module, name: str) -> torch.Tensor:
    """A tensor that accelerate keeps outside the module (in memory or on disk) until its turn in the forward."""
    owner, _, own = name.rpartition(".")
    hook = getattr(module.get_submodule(owner), "_hf_hook", None)
    hooks = getattr(hook, "hooks", [hook])
    held = next(weights for one in hooks if (weights := getattr(one, "weights_map", None)) is not None)
    return held[own]


def of_config(config: Mapping[str, Any]) -> str:
    """sha256 of a config in canonical JSON: sorted keys, no spaces."""
    return hashlib.sha256(json.dumps(config, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def parameters(module: nn.Module) -> int:
    """Number of parameters, tied ones once."""
    return sum(parameter.numel() for parameter in module.parameters())
