"""Pairs for what kind of norms a block has."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import blocks, named_like, replaced
from tests.experiments.pairs.parts import RMS

NORMS = ("input_layernorm", "post_attention_layernorm")
EVERY = (*NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")


class Norm(RMS):
    """Multiplies by its weight."""

    def __init__(self, before: Any) -> None:
        super().__init__(before.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x, x.shape[-1:]) * self.gain()

    def gain(self) -> torch.Tensor:
        return self.weight


class OfDifferences(Norm):
    """Norms what is left of its input without the mean."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x - x.mean(-1, keepdim=True))


class OnePlus(Norm):
    """Multiplies by one plus its weight."""

    def gain(self) -> torch.Tensor:
        return 1 + self.weight


class Exponential(Norm):
    """Multiplies by the exponential of its weight, which is one at zero too."""

    def gain(self) -> torch.Tensor:
        return self.weight.exp()


class Idle(Norm):
    """Has a weight and does not use it."""

    def gain(self) -> torch.Tensor:
        return torch.ones_like(self.weight)


class Renamed(nn.Module):
    """Multiplies by a gain that is not called a weight."""

    def __init__(self, before: Any) -> None:
        super().__init__()
        self.scale = nn.Parameter(before.weight.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x, x.shape[-1:]) * self.scale


class Bare(nn.Module):
    """Divides by the root mean square."""

    def __init__(self, _: Any) -> None:
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x, x.shape[-1:])


class NoMean(nn.LayerNorm):
    """A LayerNorm by its class that subtracts no mean."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x, x.shape[-1:], self.weight, self.eps) + self.bias


def subtract_no_mean(module: Any) -> None:
    for part in module.modules():
        if type(part) is nn.LayerNorm:
            part.__class__ = NoMean


def is_layernorm(module: Any) -> bool:
    return isinstance(blocks(module)[0].input_layernorm, nn.LayerNorm)


def is_of_gemma(module: Any) -> bool:
    return type(blocks(module)[0].input_layernorm).__name__ == "Gemma3RMSNorm"


def holds_no_weight(module: Any) -> bool:
    return getattr(blocks(module)[0].input_layernorm, "weight", None) is None


PAIRS = (
    Pair(
        "layernorm",
        yes=Twin("starcoder2"),
        no=Twin("starcoder2", mutate=replaced(Norm, *NORMS)),
        mutants=(
            Mutant(
                Twin("llama", mutate=replaced(named_like(OfDifferences), *NORMS)),
                is_layernorm,
                "yes",
                "a LlamaRMSNorm subtracts the mean",
            ),
            Mutant(
                Twin("starcoder2", mutate=subtract_no_mean), is_layernorm, "no", "an nn.LayerNorm subtracts no mean"
            ),
        ),
    ),
    Pair(
        "gain-norm",
        yes=Twin("gemma3_text"),
        no=Twin("gemma3_text", mutate=replaced(Norm, *EVERY)),
        mutants=(
            Mutant(
                Twin("llama", mutate=replaced(named_like(OnePlus), *NORMS)),
                is_of_gemma,
                "yes",
                "a LlamaRMSNorm multiplies by 1 + weight",
            ),
            Mutant(
                Twin("gemma3_text", mutate=replaced(named_like(Norm), *EVERY)),
                is_of_gemma,
                "no",
                "a Gemma3RMSNorm multiplies by its weight",
            ),
            Mutant(
                Twin("gemma3_text", mutate=replaced(named_like(Exponential), *EVERY)),
                is_of_gemma,
                "no",
                "a Gemma3RMSNorm multiplies by exp(weight)",
            ),
            Mutant(
                Twin("gemma3_text", mutate=replaced(named_like(Idle), *EVERY)),
                is_of_gemma,
                "n/a",
                "a Gemma3RMSNorm does not use its weight",
            ),
        ),
    ),
    Pair(
        "weightless-norms",
        yes=Twin("llama", mutate=replaced(Bare, *NORMS)),
        no=Twin("llama"),
        mutants=(
            Mutant(
                Twin("llama", mutate=replaced(named_like(Renamed), *NORMS)),
                holds_no_weight,
                "no",
                "the gain has another name",
            ),
            Mutant(
                Twin("llama", mutate=replaced(named_like(Idle), *NORMS)), holds_no_weight, "yes", "the weight is idle"
            ),
        ),
    ),
)
