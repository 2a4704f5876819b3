"""A module called with other parameters or buffers than its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def called_with(module: torch.nn.Module, parameters: Mapping[str, torch.Tensor], *args: Any, **kwargs: Any) -> Any:
    """What a module returns with these parameters or buffers, by dotted name, in place of its own, which it has again
    afterwards. One that stands under several names is replaced only under those given.

    ``torch.func.functional_call`` does the same at many times the cost of a small module's call.
    """
    held = []
    owners = {"": module} if len(parameters) == 1 else dict(module.named_modules(remove_duplicate=False))
    for path, tensor in parameters.items():
        place, _, name = path.rpartition(".")
        owner = owners[place] if place in owners else module.get_submodule(place)
        held.append((owner._parameters if name in owner._parameters else owner._buffers, name, tensor))
    own = [place[name] for place, name, _ in held]
    try:
        for place, name, tensor in held:
            place[name] = tensor
        return module(*args, **kwargs)
    finally:
        for (place, name, _), parameter in zip(held, own, strict=True):
            place[name] = parameter
