"""Which last projections add a bias, and what single heads then add up to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from probe.experiments.stream.biases import bias_facts

RunOf = Callable[..., Any]


@pytest.mark.parametrize(
    ("family", "modules", "said"),
    [
        ("gpt2", ["transformer.h.{i}.attn.c_proj", "transformer.h.{i}.mlp.c_proj"],
         "add a bias: the parts of single heads or neurons add up to what each gives less its bias"),
        ("llama", [], "`model.layers.{i}.mlp.down_proj` and `lm_head` give zero for zeros, so without a bias."),
        ("longcat_flash", [], "`model.layers.{i}.self_attn.1.o_proj`, `model.layers.{i}.mlps.0.down_proj`"),
        ("gptj", ["lm_head", "transformer.h.{i}.mlp.fc_out"], "`lm_head` adds a bias to the logits"),
    ],
)  # fmt: skip
def test_what_the_class_adds_is_told(run_of: RunOf, family: str, modules: list[str], said: str) -> None:
    [fact] = bias_facts(run_of(family))
    assert fact.value == len(modules) and fact.measured.get("modules", []) == modules
    assert said in fact.statement


def test_heads_add_up_to_the_output_less_the_bias(run_of: RunOf) -> None:
    run = run_of("gpt2")
    attention = run.model._module.transformer.h[1].attn
    given, made = run.text.get(1, "self_attn", "attention_premix"), run.text.get(1, "self_attn", "attention_output")
    matrix, heads = attention.c_proj.weight.unflatten(0, (attention.num_heads, -1)), given.flatten(2)
    parts = torch.einsum("bshd,hdw->bsw", heads.unflatten(2, (attention.num_heads, -1)), matrix)
    torch.testing.assert_close(parts, made - attention.c_proj.bias)


def test_a_bias_of_some_blocks_is_told_with_them(run_of: RunOf) -> None:
    def one_alone(model: Any) -> None:
        with torch.no_grad():
            model.transformer.h[1].attn.c_proj.bias.zero_()

    [fact] = bias_facts(run_of("gpt2", change=one_alone))
    assert fact.measured["blocks"] == [0, 2]
    assert "`transformer.h.{i}.attn.c_proj` on blocks 0 and 2" in fact.statement


def test_a_projection_that_is_not_linear_is_passed_over(run_of: RunOf) -> None:
    class Rounding(torch.nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input).round()

    def rounding(model: Any) -> None:
        for layer in model.model.layers:
            layer.mlp.down_proj.__class__ = Rounding

    [fact] = bias_facts(run_of("llama", change=rounding))
    assert "down_proj" not in fact.statement and "o_proj" in fact.statement
