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
    run = run_of("deepseek_v3")
    [fact] = pair_facts(run)
    assert fact.measured == {
        "projections": ["q_b_proj", "kv_a_proj_with_mqa"], "pairs": "interleaved", "in_values": "halves"
    }  # fmt: skip
    assert "numbers 2i and 2i + 1 turn as a pair; in `attention_queries` and `attention_keys`" in fact.statement
    assert not told(run_of("deepseek_v3", rope_interleave=False))


@pytest.mark.parametrize("family", ["deepseek_v2", "cohere", "gpt_neox", "llama"])
def test_pairs_that_stay_where_they_are(run_of: RunOf, family: str) -> None:
    assert not told(run_of(family))


def test_pairs_that_turn_backwards(run_of: RunOf) -> None:
    assert set(told(run_of("nanochat"))) == {"rotary_direction"}
    turned = [rotary for rotary in rotaries(run_of("nanochat")) if rotary]
    assert turned and all(rotary.backwards and min(rotary.frequencies) > 0 for rotary in turned)
