"""What gates a mixer's result: told by what the output projection takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from .modules import close, leaving
from .sites import Recording, Site

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": torch.nn.functional.silu,
    "sigmoid": torch.sigmoid,
    "gelu_tanh": lambda tensor: torch.nn.functional.gelu(tensor, approximate="tanh"),
    "gelu": torch.nn.functional.gelu,
    "": lambda tensor: tensor,
}


@dataclass
class Gated:
    """A gate before its activation.

    Attributes:
        flat: ``[batch, seq, channels]``.
        by_head: ``[batch, seq, heads, head_dim]``; None where the result has no heads.
        activation: its name; empty where there is none, or where a module with a norm applies it.
    """

    flat: torch.Tensor
    by_head: torch.Tensor | None
    activation: str


def gate(
    model: torch.nn.Module, recording: Recording, path: str, result: torch.Tensor, premix: torch.Tensor
) -> Gated | None:
    """The gate of a mixer: the second input of a norm that takes the result, or a factor of what is projected.

    Args:
        result: ``[batch, seq, …]``, what the recurrence gave.
        premix: ``[batch, seq, channels]``.
    """
    sites = recording.below(path)
    normed = [site for site in sites if _takes(site, result)]
    for site in normed:
        beside = [s for s in sites if s.place == site.place and s.index != site.index]
        if len(beside) == 1 and beside[0].tensor.numel() == premix.numel():
            return _shaped(beside[0].tensor, result, premix, "")
    factors = [result, *(out.tensor for site in normed if (out := leaving(recording, site.module)) is not None)]
    for factor in factors:
        if factor.numel() == premix.numel():
            found = _factor(sites, factor.reshape(premix.shape), premix)
            if found is not None:
                tensor, activation = found
                return _shaped(tensor, result, premix, activation)
    return None


def _takes(site: Site, result: torch.Tensor) -> bool:
    """Whether a module's first input is the result, in whatever shape."""
    return (
        not site.steps
        and site.side == "inputs"
        and site.tensor.numel() == result.numel()
        and torch.equal(site.tensor.flatten(), result.flatten())
    )


def _factor(sites: list[Site], factor: torch.Tensor, premix: torch.Tensor) -> tuple[torch.Tensor, str] | None:
    """The tensor that, through an activation, makes ``premix`` of ``factor``, as ``[batch, seq, channels]``."""
    for name, activation in ACTIVATIONS.items():
        for site in sites:
            if site.tensor.numel() != premix.numel() or not site.tensor.is_floating_point() or site.side != "output":
                continue
            for held in _flat(site.tensor, premix):
                if close(activation(held) * factor, premix):
                    return held, name
    return None


def _flat(tensor: torch.Tensor, premix: torch.Tensor) -> list[torch.Tensor]:
    """A tensor as ``[batch, seq, channels]``, where it is held so or with the tokens last."""
    batch, seq, channels = premix.shape
    if tensor.shape == premix.shape:
        return [tensor]
    return [tensor.transpose(1, 2)] if tensor.shape == (batch, channels, seq) else []


def _shaped(tensor: torch.Tensor, result: torch.Tensor, premix: torch.Tensor, activation: str) -> Gated:
    by_head = tensor.reshape(result.shape) if result.ndim == 4 else None
    return Gated(tensor.reshape(premix.shape), by_head, activation)
