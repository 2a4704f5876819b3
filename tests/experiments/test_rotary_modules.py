"""How long turning makes queries, and when frequencies change: against transformers' functions and planted modules."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from probe.experiments.rotary.modules import length, rotary_facts
from probe.experiments.rotary.scaling import scaling_facts

RunOf = Callable[..., Any]
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 16.0, "original_max_position_embeddings": 64}


def told(run: Any) -> dict[str, Any]:
    return {fact.name: fact for fact in rotary_facts(run)}


@pytest.mark.parametrize(
    ("parameters", "wanted"),
    [
        (YARN, 0.1 * math.log(16) + 1),
        ({**YARN, "attention_factor": 1.5}, 1.5),
        ({"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}, 1.0),
    ],
)
def test_the_factor_of_a_config_is_measured(run_of: RunOf, parameters: dict[str, Any], wanted: float) -> None:
    run = run_of("llama", change=_rotary(parameters))
    fact = told(run)["rotary_length"]
    assert fact.value == pytest.approx(wanted, rel=1e-3)
    assert (f"{fact.value:g} times as long each" in fact.statement) == (wanted != 1)


def _rotary(parameters: dict[str, Any]) -> Callable[[Any], None]:
    def change(module: Any) -> None:
        module.config.rope_parameters = parameters
        module.model.rotary_emb = type(module.model.rotary_emb)(module.config)

    return change


def test_plain_rotary_is_not_told(run_of: RunOf) -> None:
    assert told(run_of("mistral")) == {}


def test_frequencies_that_change_with_the_call_are_told(run_of: RunOf) -> None:
    run = run_of("phi3", "tiny-long")
    fact = told(run)["rotary_switch"]
    module, reach = run.model._module.model.rotary_emb, run.model.text_config.rope_parameters
    places = torch.arange(fact.value + 1)[None]
    (short, _), (long, _) = (module(torch.zeros(1), positions) for positions in (places[:, :-1], places))
    assert fact.value == reach["original_max_position_embeddings"]
    assert (
        not torch.allclose(short[:, 1], long[:, 1]) and "`original_max_position_embeddings` positions" in fact.statement
    )
    module(torch.zeros(1), places[:, :2])
    assert "rotary_switch" not in told(run_of("gpt_oss")) and "rotary_switch" not in told(run_of("phimoe"))


def test_what_is_no_turn_has_no_length() -> None:
    angles = torch.linspace(0, 3, 12).reshape(1, 3, 4)
    assert length((angles.cos() * 1.2, angles.sin() * 1.2)) == pytest.approx(1.2)
    assert length((torch.polar(torch.full_like(angles, 0.7), angles),)) == pytest.approx(0.7)
    assert length((angles.cos(), angles.sin() * 1.2)) is None
    assert length((angles,)) is None


def test_a_module_of_another_kind_is_left_out(run_of: RunOf) -> None:
    class Other(nn.Module):
        def forward(self, position_ids: torch.Tensor) -> torch.Tensor:
            raise KeyError("not called with a tensor and positions")

    def change(module: Any) -> None:
        module.model.other = Other()

    assert told(run_of("mistral", change=change)) == {}


LLAMA3 = {**YARN, "rope_type": "llama3", "high_freq_factor": 4.0, "low_freq_factor": 1.0}


@pytest.mark.parametrize(
    ("parameters", "entries"),
    [
        (LLAMA3, ("high_freq_factor", "low_freq_factor")),
        ({**YARN, "beta_fast": 16.0, "beta_slow": 1.0}, ("beta_fast", "beta_slow")),
        ({"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}, None),
    ],
)
def test_the_wavelengths_that_are_scaled_are_told_by_their_entries(
    run_of: RunOf, parameters: dict[str, Any], entries: tuple[str, str] | None
) -> None:
    facts = scaling_facts(run_of("llama", change=_rotary(parameters)))
    assert bool(facts) == bool(entries)
    for fact in facts:
        first, second = entries or ("", "")
        assert f"below `original_max_position_embeddings` / `{first}` positions keeps" in fact.statement
        assert f"above `original_max_position_embeddings` / `{second}` has it divided by `factor`" in fact.statement
