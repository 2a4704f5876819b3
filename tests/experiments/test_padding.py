"""What padding on the left changes, against prompts that are not padded at all; and masks in words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from probe.experiments.attention.padding import PADDING, in_words, inputs, padding_facts

RunOf = Callable[..., Any]


def told(run: Any) -> dict[str, str]:
    return {fact.name: fact.statement for fact in padding_facts(run)}


def moved(run: Any, **more: torch.Tensor) -> float:
    """By how much the padded prompt's logits differ from those of the prompt alone, by the model's own forward."""
    given = {name: tensor[1:2] for name, tensor in {**inputs(run), **more}.items()}
    module = run.model._module
    with torch.no_grad():
        padded = module(**given, use_cache=False).logits[:, PADDING:]
        alone = module(input_ids=given["input_ids"][:, PADDING:], use_cache=False).logits
    return float((padded - alone).abs().max())


def number(said: str) -> float:
    return float(found[1]) if (found := re.search(r"real tokens by (?:up to|at most) ([\de.+-]+),", said)) else 0.0


@pytest.mark.parametrize("family", ["llama", "opt", "bloom", "gpt2", "xlstm"])
def test_what_padding_moves_is_what_it_moves_of_a_prompt_alone(run_of: RunOf, family: str) -> None:
    run = run_of(family)
    here, said = moved(run), told(run)["left_padding"]
    assert number(said) == pytest.approx(here, rel=0.5, abs=2e-5)
    assert ("makes no difference" in said) == (here < 1e-3)


def test_positions_from_the_first_real_token_mend_a_table_of_positions(run_of: RunOf) -> None:
    run = run_of("gpt2")
    counted = (inputs(run)["attention_mask"].cumsum(-1) - 1).clamp_min(0)
    assert moved(run, position_ids=counted) < 1e-4 < moved(run)
    assert re.search(r"counted from the first real token (not at all|by up to \de-0\d)\.", told(run)["left_padding"])
    assert "the model takes no `position_ids`" in told(run_of("xlstm"))["left_padding"]


def test_masks_are_told_by_what_they_hold(run_of: RunOf) -> None:
    seen = torch.ones(4, 4, dtype=torch.bool).tril()[None, None]
    assert in_words(seen).endswith("true where a key is seen")
    assert in_words(~seen).endswith("true where a key is hidden")
    added = torch.where(seen, 0.0, torch.finfo(torch.float32).min)
    assert in_words(added).endswith("added to the scores, 0 where a key is seen and -3.4e38 where not")
    assert in_words(None) == "no mask"
    said = told(run_of("llama"))["attention_masks"]
    assert re.search(r"under eager attention, .* added to the scores.*; under sdpa, .* true where a key is seen;", said)
    assert said.endswith("; under sdpa on a prompt without padding, no mask.")
    assert re.search(r"under eager attention, .* true where a key is hidden", told(run_of("mpt"))["attention_masks"])
    assert "attention_masks" not in told(run_of("mamba"))
