"""Modules that the tables put into a model in place of its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from probe.checkpoints.fill import uniform


def seeded(name: str, *shape: int) -> torch.Tensor:
    """Numbers of unit scale, the same for the same name."""
    return (uniform(name, torch.Size(shape)) * 3**0.5).float()


def linear(given: int, out: int, name: str = "linear") -> nn.Linear:
    """A linear layer with weights of unit scale, the same for the same name."""
    made = nn.Linear(given, out, bias=False)
    made.weight.data = seeded(name, out, given) / given**0.5
    return made


class RMS(nn.Module):
    """Divides by the root mean square and multiplies by a weight."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x, x.shape[-1:]) * self.weight


class RunningMean(nn.Module):
    """Lets each position see the mean of all up to it: a mixer without a softmax."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.outer = linear(width, width, "inner"), linear(width, width, "outer")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = torch.arange(1, x.shape[1] + 1, device=x.device).to(x.dtype)
        return self.outer(self.inner(x).cumsum(1) / count[None, :, None])


class Feed(nn.Module):
    """A gated MLP with the layers of another, their neurons shifted by some places."""

    def __init__(self, mlp: Any, shift: int = 0) -> None:
        super().__init__()
        self.act_fn = nn.SiLU()
        for name in ("gate_proj", "up_proj", "down_proj"):
            before = getattr(mlp, name)
            made = linear(before.in_features, before.out_features)
            made.weight.data = before.weight.data.roll(shift, 1).clone()
            self.add_module(name, made)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Chooser(nn.Module):
    """Gives for each token the numbers of all experts, and the weights and places of those it takes."""

    def __init__(self, width: int, experts: int, chosen: int) -> None:
        super().__init__()
        self.numbers, self.chosen = linear(width, experts, "chooser"), chosen

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        numbers = self.numbers(x)
        weights, places = torch.topk(numbers.softmax(-1), self.chosen, dim=-1)
        return numbers, weights / weights.sum(-1, keepdim=True), places


class Several(nn.Module):
    """Small experts, called with the places and weights of those that each token takes."""

    def __init__(self, mlp: Any, experts: int) -> None:
        super().__init__()
        self.each = nn.ModuleList([Feed(mlp, at * 7 + 1) for at in range(experts)])

    def forward(self, x: torch.Tensor, places: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for place, expert in enumerate(self.each):
            out = out + expert(x) * (weights * (places == place)).sum(-1, keepdim=True)
        return out


class Mixture(nn.Module):
    """Experts, some of which a token is sent to, and where asked for one for every token beside them."""

    def __init__(self, mlp: Any, experts: int, chosen: int, shared: bool) -> None:
        super().__init__()
        self.chooser = Chooser(mlp.down_proj.out_features, experts, chosen)
        self.many = Several(mlp, experts)
        self.always = Feed(mlp) if shared else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        _, weights, places = self.chooser(flat)
        out = self.many(flat, places, weights)
        out = out if self.always is None else out + self.always(flat)
        return out.reshape(x.shape)
