"""Short convolutions of mixers: planted ones of every reach, and families against their own modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from probe.experiments.recurrence.convolutions import Convolution, convolution_facts, examine

RunOf = Callable[..., Any]


@pytest.mark.parametrize(("reach", "bias", "activation"), [(3, True, "silu"), (1, False, ""), (0, True, "gelu")])
def test_a_planted_convolution_is_found(reach: int, bias: bool, activation: str) -> None:
    """The places of its kernel that are zero read nothing."""
    mixer = nn.Module()
    mixer.conv = nn.Conv1d(8, 8, 4, groups=8, padding=3, bias=bias)
    x = torch.randn(1, 10, 8, generator=torch.Generator().manual_seed(0))
    functions = {"silu": nn.functional.silu, "gelu": nn.functional.gelu, "": nn.Identity()}
    with torch.no_grad():
        mixer.conv.weight[..., : 3 - reach] = 0
        made = functions[activation](mixer.conv(x.mT)[..., :10].mT)
        assert examine(mixer, x, made, 1e-5) == Convolution("conv", reach, bias, activation)
        assert examine(mixer, x, made + x, 1e-5) is None
        kept = functions[activation](mixer.conv(torch.cat([x[:, -3:], x], 1).mT)[..., 3:13].mT)
        assert (examine(mixer, x, kept, 1e-5) is None) == (reach > 0)  # other numbers than zeros stood before


@pytest.mark.parametrize(
    ("family", "path", "entries", "activation"),
    [
        ("mamba2", "backbone.layers.{i}.mixer.conv1d", ["conv_kernel"], "silu"),
        ("lfm2", "model.layers.{i}.conv.conv", ["conv_L_cache"], None),
        ("recurrent_gemma", "model.layers.{i}.temporal_block.conv_1d", ["conv1d_width"], None),
    ],
)
def test_what_a_familys_convolution_reads_is_told(
    run_of: RunOf, family: str, path: str, entries: list[str], activation: str | None
) -> None:
    run = run_of(family)
    [fact] = convolution_facts(run)
    module = run.model._module.get_submodule(path.replace("{i}", "0"))
    assert fact.measured["module"] == path and fact.measured["entries"] == entries
    assert fact.value == module.kernel_size[0] - 1 == getattr(run.model.text_config, entries[0]) - 1
    assert fact.measured["bias"] == (module.bias is not None)
    assert fact.measured.get("activation") == activation


def test_an_attention_has_no_such_fact(run_of: RunOf) -> None:
    assert convolution_facts(run_of("llama")) == []
