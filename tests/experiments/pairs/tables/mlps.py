"""Pairs for activations and for projections that round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import activations

from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import blocks, each_block


def with_activation(make: Callable[[], nn.Module]) -> Callable[[Any], None]:
    return each_block(lambda block: setattr(block.mlp, "act_fn", make()))


class TimesItself(nn.Module):
    """x · relu(x), which is relu(x)² by another way."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.relu(x)


class Idle(nn.SiLU):
    """An activation with a parameter that it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))


class Steep(nn.Module):
    """silu(b x) / b with a learned b, around a module that has no parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.steepness = nn.Parameter(torch.tensor(1.6))
        self.inner = nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.steepness * x) / self.steepness


def squares(module: Any) -> bool:
    return module.config.hidden_act == "relu2"


def holds_parameters(module: Any) -> bool:
    """Whether the activation, or the last module within it, has a parameter."""
    *_, last = blocks(module)[0].mlp.act_fn.modules()
    return any(True for _ in last.parameters())


class Rounded(nn.Linear):
    """Rounds its weight in the forward."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, (self.weight * 8).round() / 8)


def second_up_as(of: type[nn.Linear], name: str) -> Callable[[Any], None]:
    """A mutation that makes the second block's up projection one of a class, under a name."""

    def mutate(module: Any) -> None:
        blocks(module)[1].mlp.up_proj.__class__ = type(name, (of,), {})

    return mutate


def is_quantized(module: Any) -> bool:
    return hasattr(module.config, "quantization_config") or any(
        isinstance(part, nn.Linear) and type(part).__name__ != "Linear" for part in module.modules()
    )


PAIRS = (
    Pair(
        "squared-relu",
        yes=Twin("mistral", config={"hidden_act": "relu2"}),
        no=Twin("mistral"),
        mutants=(
            Mutant(
                Twin("mistral", mutate=with_activation(TimesItself)),
                squares,
                "yes",
                "the config names silu",
                blocks=[0, 1, 2],
            ),
            Mutant(
                Twin("mistral", config={"hidden_act": "relu2"}, mutate=with_activation(activations.SiLUActivation)),
                squares,
                "no",
                "the config names relu2",
            ),
        ),
    ),
    Pair(
        "learned-activation",
        yes=Twin("mistral", mutate=with_activation(nn.PReLU)),
        no=Twin("mistral"),
        mutants=(
            Mutant(Twin("mistral", mutate=with_activation(Idle)), holds_parameters, "no", "the parameter is idle"),
            Mutant(
                Twin("mistral", mutate=with_activation(Steep)),
                holds_parameters,
                "yes",
                "the parameter stands around the function",
                blocks=[0, 1, 2],
            ),
        ),
    ),
    Pair(
        "quantized-linears",
        yes=Twin("mistral", mutate=second_up_as(Rounded, "BitLinear")),
        no=Twin("mistral"),
        mutants=(
            Mutant(
                Twin("mistral", mutate=second_up_as(Rounded, "Linear")),
                is_quantized,
                "yes",
                "a class called Linear rounds",
                blocks=[1],
            ),
            Mutant(
                Twin("mistral", mutate=second_up_as(nn.Linear, "BitLinear")),
                is_quantized,
                "no",
                "a class called BitLinear does not round",
            ),
        ),
    ),
)
