"""Weights that loading passes over: what a class names, less what is a parameter after all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from probe.experiments.passed_over import passed_over

RunOf = Callable[..., Any]


def naming(*patterns: str) -> Callable[[Any], None]:
    return lambda module: setattr(module, "_keys_to_ignore_on_load_unexpected", [*patterns])


def test_what_a_class_names_is_told(run_of: RunOf) -> None:
    [fact] = passed_over(run_of("deepseek_v3"))
    assert r"match `model\.layers\.61.*`" in fact.statement and fact.value == 1
    assert passed_over(run_of("llama")) == []


def test_a_parameter_of_the_model_is_not_told(run_of: RunOf) -> None:
    [fact] = passed_over(run_of("llama", change=naming(r"lm_head\.weight", r"mtp\..*")))
    assert r"`mtp\..*`" in fact.statement and "lm_head" not in fact.statement


def test_patterns_made_for_a_number_of_blocks_are_told_once(run_of: RunOf) -> None:
    [fact] = passed_over(run_of("llama", change=naming("layers.7.self_attn.k_norm", "layers.8.self_attn.k_norm")))
    assert "match `layers.{i}.self_attn.k_norm`:" in fact.statement and fact.value == 1
