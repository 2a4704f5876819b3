"""Biases of experts: planted mixtures with some of their own, one for all, and a router's; families against theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from probe.experiments.mlp.expert_biases import Biases, bias_of_experts_facts, examine
from probe.experiments.mlp.expert_matrices import Mixture

RunOf = Callable[..., Any]

GPT_OSS = "model.layers.{i}.mlp.experts"


class Planted(nn.Module):
    """Three experts, of which a token is sent to two; it may have rows of biases of these, and one behind them all."""

    def __init__(self, own: bool, common: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.router = nn.Linear(16, 3)
        self.up, self.down = (nn.Parameter(torch.randn(3, 16, 16, generator=generator)) for _ in range(2))
        self.inner, self.outer = (
            nn.Parameter(torch.randn(3, 16, generator=generator)) if own else None for _ in range(2)
        )
        self.bias = nn.Parameter(torch.randn(16, generator=generator)) if common else None
        self.unused = nn.Parameter(torch.ones(3, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits, chosen = self.router(x).flatten().topk(2)
        out = torch.zeros_like(x)
        for weight, expert in zip(logits.softmax(0), chosen.tolist(), strict=True):
            neurons = x @ self.up[expert]
            if self.inner is not None:
                neurons = neurons + self.inner[expert]
            given = torch.tanh(neurons) @ self.down[expert]
            out = out + weight * (given if self.outer is None else given + self.outer[expert])
        return out if self.bias is None else out + self.bias


@pytest.mark.parametrize("common", [True, False])
@pytest.mark.parametrize("own", [True, False])
def test_planted_biases_are_found(own: bool, common: bool) -> None:
    planted = Planted(own, common).requires_grad_(False)
    tokens = torch.randn(4, 1, 1, 16, generator=torch.Generator().manual_seed(0))
    found = examine([Mixture(planted, token, 3) for token in tokens], 3, 1e-4)
    rows = ("inner", "outer") if own else ()
    assert found == Biases(rows, rows[1:], ("bias",) if common else (), whole=True)


@pytest.mark.parametrize(
    ("family", "measured", "says"),
    [
        ("gpt_oss", {"own": [f"{GPT_OSS}.gate_up_proj_bias", f"{GPT_OSS}.down_proj_bias"],
                     "added": [f"{GPT_OSS}.down_proj_bias"]}, "a row in"),
        ("jetmoe", {"common": ["model.layers.{i}.mlp.bias"]}, "is added once to what the mixture gives"),
        ("mixtral", {}, "The experts of `model.layers.{i}.mlp` have no biases"),
    ],
)  # fmt: skip
def test_the_biases_of_a_familys_experts_are_told(
    run_of: RunOf, family: str, measured: dict[str, list[str]], says: str
) -> None:
    [fact] = bias_of_experts_facts(run_of(family))
    assert fact.measured == measured and says in fact.statement


def test_a_dense_mlp_beside_a_mixture_has_no_such_fact(run_of: RunOf) -> None:
    [fact] = bias_of_experts_facts(run_of("gemma4_text", "tiny-moe"))
    assert "`model.language_model.layers.{i}.experts`" in fact.statement
    assert bias_of_experts_facts(run_of("llama")) == []


def test_what_no_bias_explains_is_not_told() -> None:
    class Shifted(Planted):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + 1

    planted = Shifted(own=False, common=False).requires_grad_(False)
    found = examine([Mixture(planted, torch.ones(1, 1, 16), 3)], 3, 1e-4)
    assert found == Biases((), (), (), whole=False)
