"""A stream of another width than the hidden size is named and told; what an equation leaves out is told where it is."""

from __future__ import annotations

from functools import cache

import pytest

from probe.checkpoints import load, resolve
from probe.experiments.facts import stream_width
from probe.measure import values
from probe.measure.collect import all_identities
from probe.measure.run import Run, measure
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


@pytest.mark.parametrize(("family", "name", "left"), [("llama", "tiny", False), ("gemma3_text", "tiny-vision", True)])
def test_image_tokens_are_named_only_where_the_prompt_has_any(family: str, name: str, left: bool) -> None:
    found, _ = all_identities(run_of(family, name))
    over_tokens = [i.expression for i in found if i.name in ("embedding", "stream into the first block")]
    assert over_tokens and all(expression.endswith(" where no image token") == left for expression in over_tokens)
