"""Weights that loading passes over: what a class names, less what is a parameter after all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from probe.experiments.calls.passed_over import passed_over

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
    assert fact.measured == {"patterns": [r"mtp\..*"]}


def test_patterns_made_for_a_number_of_blocks_are_told_for_any(run_of: RunOf) -> None:
    made = naming("layers.0.self_attn.k_norm", "layers.1.self_attn.k_norm", r"layers\.3\.", "layers.4.mtp")
    run = run_of("llama", change=made)
    assert len(run.text) == 3
    [fact] = passed_over(run)
    assert (
        fact.value == 3
        and " on some blocks: there the class has" in fact.statement
        and "`layers.{i}.self_attn.k_norm`" in fact.statement
    )
    assert r"`layers\.{num_hidden_layers}\.`" in fact.statement
    assert "`layers.{num_hidden_layers + 1}.mtp`" in fact.statement


def test_a_pattern_of_a_wrapped_models_class_is_told_as_it_is(run_of: RunOf) -> None:
    [fact] = passed_over(run_of("kimi_k2"))
    assert r"match `model\.layers\.61.*`" in fact.statement
