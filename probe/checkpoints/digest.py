"""Content digests: of a model's weights, of a config."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import nn


def of_weights(module: nn.Module) -> str:
    """sha256 of the state dict: names in sorted order, each with dtype, shape and bytes.

    A tensor with several names (a tied head) is hashed once, under its first name; the others name that one.
    """
    sha = hashlib.sha256()
    first: dict[tuple[int, int], str] = {}
    for name, tensor in sorted(module.state_dict().items()):
        key = (tensor.data_ptr(), tensor.numel())
        if tensor.numel() and key in first:
            sha.update(f"{name} = {first[key]}\n".encode())
            continue
        first[key] = name
        sha.update(f"{name} {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}\n".encode())
        sha.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def of_config(config: Mapping[str, Any]) -> str:
    """sha256 of a config in canonical JSON: sorted keys, no spaces."""
    return hashlib.sha256(json.dumps(config, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def parameters(module: nn.Module) -> int:
    """Number of parameters, tied ones once."""
    return sum(parameter.numel() for parameter in module.parameters())
