"""Which numbers of a projection's output turn as a pair, and which way, on twins whose classes differ in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from probe.experiments.rotary.as_projected import pair_facts
from probe.experiments.rotary.turning import rotaries

RunOf = Callable[..., Any]


def told(run: Any) -> dict[str, Any]:
    return {fact.name: fact for fact in pair_facts(run)}


def test_pairs_that_turning_moves_apart(run_of: RunOf) -> None:
    fact = told(run_of("deepseek_v3"))["rotary_reorders"]
    assert fact.measured == {
        "projections": ["q_b_proj", "kv_a_proj_with_mqa"], "pairs": "interleaved", "in_values": "halves"
    }  # fmt: skip
    assert "numbers 2i and 2i + 1 turn as a pair; in `attention_queries` and `attention_keys`" in fact.statement
    assert "rotary_reorders" not in told(run_of("deepseek_v3", rope_interleave=False))


@pytest.mark.parametrize("family", ["deepseek_v2", "cohere", "gpt_neox", "llama"])
def test_pairs_that_stay_where_they_are(run_of: RunOf, family: str) -> None:
    assert "rotary_reorders" not in told(run_of(family))


def test_a_part_at_the_end_of_a_head(run_of: RunOf) -> None:
    """Of a latent attention's head the last dimensions turn, as many as its config says."""
    fact = told(run_of("deepseek_v2"))["rotary_part"]
    assert fact.measured == {"turning": 8, "width": 20} and "as many as `qk_rope_head_dim` says" in fact.statement


@pytest.mark.parametrize("family", ["llama", "phi", "mamba", "bloom"])
def test_a_head_that_turns_from_its_first_dimension_or_not_at_all(run_of: RunOf, family: str) -> None:
    assert "rotary_part" not in told(run_of(family))


def test_pairs_that_turn_backwards(run_of: RunOf) -> None:
    assert set(told(run_of("nanochat"))) == {"rotary_direction"}
    turned = [rotary for rotary in rotaries(run_of("nanochat")) if rotary]
    assert turned and all(rotary.backwards and min(rotary.frequencies) > 0 for rotary in turned)
