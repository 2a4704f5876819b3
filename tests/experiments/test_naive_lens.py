"""How far norm and head alone are from the logits, and what the head's input is multiplied by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from probe.experiments.stream.naive_lens import naive_lens_facts

RunOf = Callable[..., Any]


def facts(run: Any) -> dict[str, Any]:
    return {fact.name: fact for fact in naive_lens_facts(run)}


@pytest.mark.parametrize(
    ("family", "named", "words"),
    [
        ("minicpm3", {"entry": "dim_model_base", "over": "hidden_size"}, "`dim_model_base` / `hidden_size`"),
        ("inkling_text", {"over": "logits_mup_width_multiplier"}, "1 / `logits_mup_width_multiplier`"),
    ],
)
def test_the_factor_before_the_head(run_of: RunOf, family: str, named: dict[str, Any], words: str) -> None:
    run = run_of(family)
    found = facts(run)
    normed, head = run.root("final_norm_output"), run.root("lm_head_output")
    table = run.model.lm_head._module.weight
    assert torch.allclose(normed @ table.T * found["head_factor"].value, head, atol=1e-3 * float(head.abs().max()))
    assert found["head_factor"].measured == named and words in found["head_factor"].statement
    assert "without the factor before the head" in found["naive_lens"].statement


def test_a_factor_that_no_entry_gives_is_told_by_its_number(run_of: RunOf) -> None:
    def scaled(module: Any) -> None:
        def scale(_: Any, __: Any, output: Any) -> None:
            output.last_hidden_state = output.last_hidden_state * 0.3

        module.model.register_forward_hook(scale)

    found = facts(run_of("llama", change=scaled))["head_factor"]
    assert found.measured == {} and found.statement == "What the head reads is `final_norm_output` times 0.3."


@pytest.mark.parametrize(
    ("family", "without"), [("gemma2", "the cap"), ("granite", "the factor behind the head"), ("llama", None)]
)
def test_norm_and_head_alone(run_of: RunOf, family: str, without: str | None) -> None:
    run = run_of(family)
    found = facts(run)
    assert "head_factor" not in found and (without is None) == (found == {})
    if without:
        head, logits = run.root("lm_head_output"), run.root("logits")
        apart = float((head - logits).abs().max() / logits.abs().max())
        assert found["naive_lens"].measured["logits"] == pytest.approx(apart, rel=0.05)
        assert f"alone, without {without}, miss" in found["naive_lens"].statement
