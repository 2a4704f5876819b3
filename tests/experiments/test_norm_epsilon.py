"""What norms add under their root, against the config and planted norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from probe.experiments.stream.norm_epsilon import epsilon, epsilon_facts
from probe.experiments.stream.norms import Call

RunOf = Callable[..., Any]


class Behind(nn.Module):
    """A norm that adds behind the root."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x / (x.square().mean(-1, keepdim=True).sqrt() + 1e-3)


@pytest.mark.parametrize("wanted", [1e-5, 1e-6, 3e-7])
def test_what_a_norm_adds_is_measured(wanted: float) -> None:
    given = torch.randn(1, 5, 16, generator=torch.Generator().manual_seed(0))
    layer = nn.LayerNorm(16, eps=wanted)
    nn.init.normal_(layer.bias)
    for norm, centred in ((nn.RMSNorm(16, eps=wanted), False), (layer, True)):
        assert epsilon(Call(norm, given, (), {})) == (pytest.approx(wanted, rel=2e-2), centred)
    assert epsilon(Call(Behind(), given, (), {})) is None


@pytest.mark.parametrize(
    ("family", "overrides", "norm", "added", "entry"),
    [
        ("llama", {}, "LlamaRMSNorm", 1e-5, "rms_norm_eps"),
        ("llama", {"rms_norm_eps": 0.0003}, "LlamaRMSNorm", 0.0003, "rms_norm_eps"),
        ("gpt2", {}, "LayerNorm", 1e-5, "layer_norm_epsilon"),
        ("olmo", {}, "OlmoLayerNorm", 1e-5, None),
    ],
)
def test_the_configs_name_is_told(
    run_of: RunOf, family: str, overrides: dict[str, float], norm: str, added: float, entry: str | None
) -> None:
    [fact] = epsilon_facts(run_of(family, **overrides))
    under = "variance" if "Layer" in norm else "mean square"
    assert fact.measured == {"norms": [norm], "added": [added], "entries": [entry], "to": [under]}
    assert f"add {added:g}{f', `{entry}`,' if entry else ''} to the {under} under" in fact.statement
