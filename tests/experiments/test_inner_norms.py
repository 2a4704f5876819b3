"""Norms inside sublayers: what they norm together, their gain, and what they add, against the classes' own code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from probe.experiments.stream.inner_norms import InnerNorm, inner_norm, inner_norm_facts
from probe.experiments.stream.norm_epsilon import epsilon_facts
from probe.experiments.stream.norms import Call

RunOf = Callable[..., Any]


def rows(run: Any) -> dict[str, dict[str, Any]]:
    """Name of each norm -> what the fact says of it."""
    [fact] = inner_norm_facts(run)
    found = [dict(zip(fact.measured, each, strict=True)) for each in zip(*fact.measured.values(), strict=True)]
    return {str(row["norms"]): row for row in found}


class Grouped(nn.Module):
    """A norm of each group of eight channels by itself, behind a gate or before it."""

    def __init__(self, behind: bool, gate: Callable[[torch.Tensor], torch.Tensor] = nn.functional.silu) -> None:
        super().__init__()
        self.gate = gate
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 16))
        self.behind = behind

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        factor = self.gate(gate)
        parts = (x * factor if self.behind else x).unflatten(-1, (2, 8))
        normed = (parts * torch.rsqrt(parts.square().mean(-1, keepdim=True) + 1e-5)).flatten(-2)
        return self.weight * normed if self.behind else self.weight * normed * factor


def test_groups_and_gates_are_told_apart() -> None:
    generator = torch.Generator().manual_seed(0)
    given, gate = torch.randn(2, 1, 4, 16, generator=generator)
    before, behind = (inner_norm(Call(Grouped(each), given, (gate,), {})) for each in (False, True))
    assert before == InnerNorm(8, 2, "weight", 16, True, "mean square", pytest.approx(1e-5, rel=0.02))
    assert behind == before
    by_sigmoid = inner_norm(Call(Grouped(True, torch.sigmoid), given, (gate,), {}))
    assert by_sigmoid is not None and by_sigmoid.added == pytest.approx(1e-5, rel=0.02)
    unknown = inner_norm(Call(Grouped(True, torch.cosh), given, (), {"gate": gate}))
    assert unknown == InnerNorm(8, 2, "weight", 16, True, None, None)
    assert inner_norm(Call(nn.Tanh(), given, (), {})) is None and inner_norm(Call(nn.Identity(), given, (), {})) is None
    layer = nn.LayerNorm(16, eps=1e-3)
    nn.init.normal_(layer.bias)
    assert inner_norm(Call(layer, given.relu(), (), {})) == InnerNorm(16, 1, "weight", 16, False, "variance", 1e-3)


def test_a_latent_norm_adds_what_no_config_says(run_of: RunOf) -> None:
    """Its number is the config's as it happens; only another config shows that it does not follow it."""
    run = run_of("deepseek_v3")
    assert epsilon_facts(run)[0].measured["entries"] == ["rms_norm_eps"]
    found = rows(run)
    assert set(found) == {"self_attn.q_a_layernorm", "self_attn.kv_a_layernorm"}
    assert all((row["added"], row["entries"], row["fixed"]) == (1e-6, None, True) for row in found.values())
    [fact] = inner_norm_facts(run_of("minicpm3"))
    assert "`self_attn.kv_a_layernorm` add 1e-06 under the root, other than the norms" in fact.statement


def test_norms_of_queries_are_of_a_head_or_of_all(run_of: RunOf) -> None:
    whole, head = rows(run_of("olmo2"))["self_attn.q_norm"], rows(run_of("qwen3"))["self_attn.q_norm"]
    assert (whole["over"], whole["groups"], whole["gains"]) == (96, 1, 96)
    assert (head["over"], head["groups"], head["gains"]) == (24, 6, 24)
    own = rows(run_of("cohere", "tiny-qk-norm"))["self_attn.q_norm"]
    assert (own["over"], own["groups"], own["gains"], own["to"]) == (16, 6, 96, "variance")


def test_a_mixers_norm_has_another_gain_than_the_blocks(run_of: RunOf) -> None:
    found = rows(run_of("qwen3_next"))
    assert found["self_attn.q_norm"]["gain"] == "1 + weight"
    mixer = found["linear_attn.norm"]
    assert (mixer["gain"], mixer["gated"], mixer["entries"]) == ("weight", True, "rms_norm_eps")


@pytest.mark.parametrize(
    ("family", "norm", "entry"),
    [("mamba2", "mixer.norm", "layer_norm_epsilon"), ("bamba", "mamba.norm", "rms_norm_eps"),
     ("zamba2", "mamba.norm", None)],
)  # fmt: skip
def test_a_norm_behind_its_gate_is_told_what_it_adds(run_of: RunOf, family: str, norm: str, entry: str | None) -> None:
    run = run_of(family)
    [own] = {
        module.variance_epsilon
        for path, module in run.model._module.named_modules()
        if path.endswith(norm) and hasattr(module, "variance_epsilon")
    }
    row = rows(run)[norm]
    assert (row["added"], row["to"]) == (own, "mean square")
    assert (row["entries"], row["fixed"]) == (entry, entry is None)


def test_vectors_of_length_one_are_divided_by_a_sum(run_of: RunOf) -> None:
    [fact] = epsilon_facts(run_of("dory"))
    assert fact.measured["to"] == ["sum of squares"] and fact.measured["added"] == [1e-6]
    assert not inner_norm_facts(run_of("llama"))
