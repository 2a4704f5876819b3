"""How a mixer's projection is split: planted orders, and what transformers' own code splits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from probe.experiments.recurrence.mixer_projections import in_words, mixer_facts, split

RunOf = Callable[..., Any]


def test_planted_parts_are_found_in_their_order() -> None:
    given = torch.randn(9, 16, generator=torch.Generator().manual_seed(0))
    values = {"mixer_gate": given[:, [0, 1, 8, 9]], "mixer_x": given[:, [2, 3, 4, 10, 11, 12]]}
    runs = split(given, values)
    assert runs == [("mixer_gate", 2), ("mixer_x", 3), ("others", 3), ("mixer_gate", 2), ("mixer_x", 3), ("others", 3)]
    assert in_words(runs) == "`mixer_gate` (2), `mixer_x` (3), 3 unnamed channels, 2 times over"
    assert split(given, {"mixer_gate": given[:, :4] + 0.01}) == [("others", 16)]


@pytest.mark.parametrize(
    ("family", "says"),
    [
        ("mamba", "in_proj` gives is, side by side, what becomes `conv_input` (192), `mixer_gate` (192)."),
        ("mamba", "x_proj` gives is, side by side, what becomes 8 unnamed channels, `mixer_b` (12), `mixer_c` (12)."),
        ("mamba2", "`mixer_gate` (192), `mixer_x` (192), `mixer_b` (36), `mixer_c` (36), `mixer_dt` (12)."),
        ("qwen3_next", "`attention_queries` (12), `attention_keys` (12), `attention_values` (32), "
                       "`mixer_gate` (32), 2 times over."),
        ("lfm2", "`mixer_input_gate` (96), `mixer_gate` (96), `mixer_x` (96)."),
        ("zamba", "`conv_input` (1), `mixer_gate` (1), 192 times over."),
        ("falcon_h1", "`mixer_dt` (12), each times a number."),
    ],
)  # fmt: skip
def test_the_parts_of_a_families_projection_are_told(run_of: RunOf, family: str, says: str) -> None:
    said = [fact.statement for fact in mixer_facts(run_of(family))]
    assert any(says in statement for statement in said), said


def test_the_parts_have_their_widths_apart_from_the_sentence(run_of: RunOf) -> None:
    [fact] = mixer_facts(run_of("lfm2"))
    parts = ["mixer_input_gate", "mixer_gate", "mixer_x"]
    projection = "model.layers.{i}.conv.in_proj"
    assert fact.measured == {
        "projection": projection, "parts": parts, "widths": [96, 96, 96], "times_a_number": False
    }  # fmt: skip


def test_a_model_without_mixers_has_no_such_fact(run_of: RunOf) -> None:
    assert mixer_facts(run_of("llama")) == []
