"""A stream of another width than the hidden size is named and told; what an equation leaves out is told where it is."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from probe.checkpoints import load, resolve
from probe.experiments.facts import stream_width
from probe.measure import values
from probe.measure.collect import all_identities
from probe.measure.identities import Block, Check, evaluate
from probe.measure.run import Run, measure
from probe.measure.shapes import shapes
from probe.record.findings import _unkept
from probe.standard import StandardizedTransformer

WIDTHS = {
    "blt": (192, "192 wide; token embeddings are 96 wide; what the head reads is 96 wide."),
    "qwen4_exp_text": (384, "384 wide: 4 streams side by side, each as wide as `hidden_size`, 96."),
}


@cache
def run_of(family: str, name: str = "tiny") -> Run:
    return measure(StandardizedTransformer(load(resolve(name, family), attn="eager")))


@pytest.mark.parametrize("family", [*WIDTHS, "llama", "deepseek_v4"])
def test_a_stream_of_another_width_has_a_name_of_its_own(family: str) -> None:
    run = run_of(family)
    rows = values.rows(run.model, values.Measured({}, run.readings), vision=False)
    named = {row.name: row.shape[-1] for row in rows if row.shape and values.STREAM_WIDTH in row.dims}
    plain = [row.shape[-1] for row in rows if row.shape and row.dims[-1:] == ["hidden_size"]]
    assert set(plain) == {run.model.hidden_size}
    found = stream_width(run)
    if family not in WIDTHS:
        assert not named and not found
        return
    width, said = WIDTHS[family]
    assert {"layer_input", "layer_output"} <= named.keys() and set(named.values()) == {width}
    assert [fact.value for fact in found] == [width] and found[0].statement.endswith(said)
    assert set(found[0].measured.values()) == ({4} if family == "qwen4_exp_text" else {96})


@pytest.mark.parametrize(("family", "name", "left"), [("llama", "tiny", False), ("gemma3_text", "tiny-vision", True)])
def test_image_tokens_are_named_only_where_the_prompt_has_any(family: str, name: str, left: bool) -> None:
    found, _ = all_identities(run_of(family, name))
    over_tokens = [i.expression for i in found if i.name in ("embedding", "stream into the first block")]
    assert over_tokens and all(expression.endswith(" where no image token") == left for expression in over_tokens)


def test_an_equation_that_fails_on_some_blocks_is_told_with_them() -> None:
    run = run_of("llama")
    last = len(run.text) - 1

    def pair(block: Block) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor([0.5 if block.index in (0, last) else 0.0]), torch.zeros(1)

    [found] = evaluate(run, run.text, [Check("odd", "a == b", block=pair)])
    assert not found.holds and found.broken == [0, last]
    fact = _unkept(found, len(run.text))
    assert fact.measured == {"blocks": [0, last]} and fact.value == 0.5
    assert fact.statement == f"The usual `a == b` does not hold: the two sides differ by 0.5 on blocks 0 and {last}."
    [whole] = evaluate(run, run.text, [Check("odd", "a == b", root=lambda _: (torch.ones(1), torch.zeros(1)))])
    assert whole.broken is None and _unkept(whole, 3).measured == {}


def test_lanes_are_followed_to_the_head_by_the_module_that_joins_them() -> None:
    found, _ = all_identities(run_of("hy_v4"))
    [final] = [i for i in found if i.name == "final norm"]
    assert final.holds and final.expression == "model.norm(model.hc_head(layers[-1].layer_output)) == final_norm_output"


def test_a_module_between_the_final_norm_and_the_head_is_followed() -> None:
    found, _ = all_identities(run_of("modernbert-decoder"))
    [head] = [i for i in found if i.name == "head"]
    assert head.holds and head.expression == "decoder(lm_head(final_norm_output)) == lm_head_output"


def test_a_factor_is_its_own_contributions_where_two_have_one_name() -> None:
    run = run_of("falcon_h1")
    ((shape,), _) = shapes(run, run.text, [""] * len(run.text))
    assert {factor.name: factor.contribution for factor in shape.factors} == {
        "ssm_out_multiplier": "linear_attn.attention_output",
        "attn_out_multiplier": "self_attn.attention_output",
    }
    run = run_of("granite")
    ((shape,), _) = shapes(run, run.text, [""] * len(run.text))
    assert {factor.contribution for factor in shape.factors} == {"attention_output", "mlp_output"}
