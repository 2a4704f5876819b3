"""Telling the modules of a recorded forward by what they did."""

from __future__ import annotations

import torch

from .sites import Recording, Site


def has_matrix(module: torch.nn.Module) -> bool:
    """Whether the module itself holds a matrix that it multiplies with: a linear layer of any class."""
    return any(p.ndim == 2 for p in module.parameters(recurse=False)) or isinstance(
        getattr(module, "linear", None), torch.nn.Linear
    )


ACTIVATIONS = frozenset("gelu silu relu relu_ sigmoid tanh mish softplus leaky_relu hardtanh relu6".split())
"""Functions of torch that are applied to each number by itself."""


def last_projection(model: torch.nn.Module, recording: Recording, host: str, width: int) -> str | None:
    """Path of the last linear layer that ran inside a module, or is it, and gave ``[…, width]``; one that makes a gate,
    whose output an activation function takes, only where there is no other.
    """
    found = [
        site
        for site in recording.below(host)
        if not site.steps
        and site.side == "output"
        and site.index == ()
        and site.tensor.shape[-1] == width
        and has_matrix(model.get_submodule(site.module))
        and recording.once(site)
    ]
    plain = [site for site in found if not _makes_a_gate(recording, host, site)]
    return max(plain or found, key=lambda site: site.order).module if found else None


def _makes_a_gate(recording: Recording, host: str, made: Site) -> bool:
    """Whether an activation function takes what a linear layer gave, as it is."""
    return any(
        event.name in ACTIVATIONS
        and event.order > made.order
        and event.inputs
        and event.inputs[0].shape == made.tensor.shape
        and torch.equal(event.inputs[0], made.tensor)
        for event in recording.inside(host)
    )


def entering(recording: Recording, module: str) -> Site | None:
    """The first tensor that a module was called with."""
    return next((s for s in recording.below(module) if s.place == (module, (), "inputs")), None)


def leaving(recording: Recording, module: str) -> Site | None:
    """The first tensor that a module gave."""
    return next((s for s in recording.below(module) if s.place == (module, (), "output")), None)


CLOSE = {torch.float32: 1e-4, torch.float64: 1e-4}
"""Largest difference, relative to the largest value, at which other arithmetic gives the same; half precision: 3e-2."""


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are the same up to the rounding of their dtype."""
    if one.shape != other.shape:
        return False
    tolerance = CLOSE.get(other.dtype, 3e-2)
    return float((one.float() - other.float()).abs().max()) <= tolerance * float(other.float().abs().max())
