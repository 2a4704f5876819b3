"""Facts on what is easily taken for something else: right on models that are known, and gone where they are mended."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from probe.checkpoints import load, resolve
from probe.experiments.stream.misread import misread_facts
from probe.measure.run import Run, measure
from probe.schema import Fact
from probe.standard import StandardizedTransformer

APART = {"bloom": True, "mpt": True, "gemma2": True, "olmo2": True, "llama": False, "gpt2": False, "falcon": False}
"""Whether a sublayer's module returns something else than what the block adds."""

GAINS = {"gemma2": 1, "gemma": 1, "llama": 0, "glm4": 0, "nemotron": 1}
"""What is added to the final norm's weight."""

SINKS = {"gpt_oss": "every block", "mimo_v2_flash": "blocks 2 and 4", "llama": None}


@cache
def run_of(family: str) -> Run:
    return measure(StandardizedTransformer(load(resolve("tiny", family), attn="eager")))


def facts(family: str) -> dict[str, Fact]:
    run = run_of(family)
    run.__dict__.pop("_extra", None)
    return {fact.name: fact for fact in misread_facts(run)}


@pytest.mark.parametrize("family", APART)
def test_both_readings_of_a_sum_are_evaluated(family: str) -> None:
    found = facts(family).get("returns_as_terms")
    assert (found is not None) == APART[family]
    if found is not None:
        assert found.value > 0.1 and "on every block" in found.statement
        exact = found.measured["with_contributions"]
        assert isinstance(exact, float) and exact < 1e-5 and f"misses by {exact:g}." in found.statement


@pytest.mark.parametrize("family", GAINS)
def test_the_final_norms_gain(family: str) -> None:
    found = facts(family)["final_norm_gain"]
    assert found.value == GAINS[family] and found.measured == {"weight": "no weight" not in found.statement}


@pytest.mark.parametrize("family", SINKS)
def test_the_parameter_that_joins_the_softmax(family: str) -> None:
    found, where = facts(family).get("sink_parameter"), SINKS[family]
    assert (found is not None) == (where is not None)
    if found is not None:
        assert "`model.layers.{i}.self_attn.sinks`" in found.statement and found.statement.endswith(f"on {where}.")
        blocks = [2, 4] if family == "mimo_v2_flash" else [0, 1, 2, 3]
        assert found.measured == {"parameter": "model.layers.{i}.self_attn.sinks", "blocks": blocks}


def test_sinks_are_left_as_they_were_and_an_unused_one_is_none() -> None:
    module = run_of("gpt_oss").model._module
    before = {name: parameter.clone() for name, parameter in module.named_parameters() if name.endswith("sinks")}
    facts("gpt_oss")
    assert before and all(torch.equal(module.get_parameter(name), held) for name, held in before.items())
    attention = module.model.layers[0].self_attn
    attention.register_parameter("unused", torch.nn.Parameter(torch.zeros_like(attention.sinks), requires_grad=False))
    try:
        assert "self_attn.sinks" in facts("gpt_oss")["sink_parameter"].statement
    finally:
        del attention.unused
