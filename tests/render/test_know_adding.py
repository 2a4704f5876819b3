"""What to know of adding to the stream, and what follows from it: each sentence follows the record."""

from __future__ import annotations

import re

import pytest

from probe.render.know import what_to_know
from probe.render.know.subject import Subject
from probe.render.know.terms import terms
from probe.render.standing import Standing
from tests.render.knowing import changed, committed, plain


def test_a_plain_block_adds_what_its_modules_return() -> None:
    page = committed("llama", "tiny")
    text = plain(page, "know-adding")
    assert "add it to layer_output" in text and "model.layers.{i}.self_attn (element 0)" in text
    assert "is one term more of the block's sum" in text and "moved by that noise to within" in text
    assert "plus all contributions" in plain(page, "know-consequences")
    assert plain(page, "know-blocks").startswith("None: all")


def test_a_norm_after_a_sublayer_is_told_with_the_module_before_it() -> None:
    page = committed("gemma3_text", "tiny")
    text = plain(page, "know-adding")
    assert "what the norms model.layers.{i}.post_attention_layernorm" in text
    assert "not what model.layers.{i}.self_attn and model.layers.{i}.mlp return" in text
    assert {term.place for term in terms(Subject(page))} == {"norm"}
    assert "steer and ablate at" in plain(page, "know-consequences")


def test_a_factor_of_the_sum_is_told_where_a_vector_goes_in_and_in_attribution() -> None:
    page = committed("gemma4_text", "tiny")
    assert "multiplies its whole sum by layer_scalar" in plain(page, "know-adding")
    assert "every later block" in plain(page, "know-consequences")
    assert "plus all contributions" not in plain(page, "know-consequences")
    assert "tanh at ±30" in plain(page, "know-lens")
    assert "takes its keys and values from the last earlier block" in plain(page, "know-blocks")


def test_an_operation_that_gives_the_term_is_told() -> None:
    assert "no module returns it" in plain(committed("llama4_text", "tiny"), "know-adding")


def test_a_factor_of_a_term_is_told_with_the_configs_number() -> None:
    page = committed("llama", "tiny")
    shape = page.record.shapes[0]
    factor = {"name": "residual_multiplier", "kind": "constant", "applies_to": "contribution"}
    factors = [{**factor, "contribution": name} for name in ("attention_output", "mlp_output")]
    shapes = [type(shape).model_validate(shape.model_dump() | {"factors": factors})]
    row = type(page.record.config[0])(name="residual_multiplier", value=0.22)
    text = plain(changed(page, shapes=shapes, config=[*page.record.config, row]), "know-adding")
    assert "attention_output and mlp_output are multiplied by residual_multiplier (0.22)" in text
    assert "divided by that" in text and "times these factors" in text


def test_a_factor_of_several_terms_together_is_told_of_each() -> None:
    page = committed("granitemoeshared", "tiny")
    scaled = {term.sublayer.host for term in terms(Subject(page)) if term.factors == ("residual_multiplier",)}
    assert scaled == {"self_attn", "block_sparse_moe", "shared_mlp"}
    assert "times what the block's sum multiplies it by" in plain(committed("zaya", "tiny"), "know-adding")


def test_a_module_that_returns_the_stream_is_told() -> None:
    page = committed("llama", "tiny")
    record = page.record
    values = [
        v.model_copy(
            update={
                "location": "dense.output",
                "hf": v.hf.model_copy(update={"path": f"{v.hf.path}.dense", "element": None}),
            }
        )
        if v.name == "attention_output" and v.hf
        else v
        for v in record.values
    ]
    found = next(e for e in record.experiments if e.slug == "residual-inside-module")
    held = found.model_copy(
        update={"verdict": "yes", "statement": "It does.", "blocks": list(range(len(record.blocks)))}
    )
    page = changed(page, values=values, experiments=[held if e is found else e for e in record.experiments])
    text = plain(page, "know-adding")
    assert "attention_output is what model.layers.{i}.self_attn.dense returns" in text
    assert "model.layers.{i}.self_attn returns the sum with the stream" in text
    said = plain(page, "know-consequences")
    assert "what a sublayer's module returns is the stream" in said and "removes the whole stream" in said
    named = held.model_copy(update={"measured": {"modules": ["around", "mlp"]}})
    page = changed(page, experiments=[named if e is held else e for e in page.record.experiments])
    assert "what around and mlp return is the stream" in plain(page, "know-consequences")


def test_a_stream_that_changes_between_blocks_is_not_called_exact() -> None:
    page = committed("llama", "tiny")
    identities = [i for i in page.record.identities if i.name != "stream between blocks"]
    fact = page.record.facts[0].model_copy(
        update={
            "name": "unkept_stream_between_blocks",
            "value": 0.2,
            "measured": {"blocks": [1, 2]},
            "statement": "The usual `a == b` does not hold.",
        }
    )
    page = changed(page, identities=identities, facts=[*page.record.facts, fact])
    text = plain(page, "know-adding")
    assert "changed on its way" in text and "by exactly" not in text
    assert "plus all contributions" not in plain(page, "know-consequences")
    assert "The usual a == b does not hold." in plain(page, "know-unkept")
    fact = fact.model_copy(update={"measured": {"blocks": [1]}})
    text = plain(changed(page, facts=[*page.record.facts[:-1], fact]), "know-adding")
    assert "but not on block 0: what enters block 1 is another stream" in text


def test_what_the_answer_of_a_later_sublayer_adds_is_told_where_sublayers_follow_one_another() -> None:
    assert "mlp_output is computed from the stream with attention_output already in it" in plain(
        committed("llama", "tiny"), "know-consequences"
    )
    assert "already in it" not in plain(committed("cohere", "tiny"), "know-consequences")
    assert "already in it" not in plain(committed("mamba2", "tiny"), "know-consequences")


def test_passes_of_looped_blocks_are_told_where_a_vector_goes_in() -> None:
    page = committed("dory", "tiny")
    quirk = page.record.experiments[0].model_copy(
        update={"slug": "looped-blocks", "verdict": "yes", "blocks": [2, 3], "statement": "Blocks run twice."}
    )
    kept = [e for e in page.record.experiments if e.slug != "looped-blocks"]
    page = changed(page, experiments=[*kept, quirk])
    assert "Blocks run twice. A hook that counts" in plain(page, "know-adding")
    assert "run twice" not in plain(page, "know-blocks") + plain(page, "know-machinery")


def test_lanes_are_said_to_give_a_contribution_no_fixed_weight() -> None:
    assert "no fixed weight" in plain(committed("deepseek_v4", "tiny"), "know-consequences")
    assert "no fixed weight" not in plain(committed("llama", "tiny"), "know-consequences")


def test_a_contribution_made_beside_another_does_not_see_it() -> None:
    text = plain(committed("falcon_h1", "tiny"), "know-consequences")
    assert "Within a block mlp_output is computed from" in text
    assert "with linear_attn.attention_output and self_attn.attention_output already in it" in text
    assert "Nothing scales or norms the stream itself between its adds" in text


def test_behind_a_norm_of_the_stream_each_contribution_is_told_as_its_own_edit_went() -> None:
    text = plain(committed("minimax", "tiny"), "know-adding")
    assert "mlp_output is what model.layers.{i}.mlp returns: only the add comes after" in text
    assert re.search(r"attention_output \(blocks 1, 3\) are what [^:]*: the add comes after, and then a norm", text)
    assert "In the run noise was added to mlp_output," in text


def test_the_blocks_between_which_the_stream_changes_are_told() -> None:
    record = committed("dory", "tiny").record
    assert "but not on blocks 1, 3: what enters blocks 2, 4 is another stream" in plain(
        Standing(record, None), "know-adding"
    )
    built = record.model_copy(update={"checkpoint": record.checkpoint.model_copy(update={"kind": "config"})})
    assert "is not on every block what enters the next" in plain(Standing(built, record), "know-adding")


@pytest.mark.parametrize(
    ("family", "index"),
    [("deepseek_v4", "of which [:, :, k] is lane k"), ("gemma3n_text", "[:, :, k] of its tensor.permute")],
)
def test_which_axis_of_a_blocks_output_the_lanes_are_is_told(family: str, index: str) -> None:
    text = plain(committed(family, "tiny"), "know-adding")
    assert index in text and "what leaves a block is exactly what enters the next" in text


def test_a_block_that_leaves_out_what_entered_it_is_told() -> None:
    assert "On blocks 0, 3, … 9 (every 3rd) the stream starts anew" in plain(
        committed("inkling2_loop_text", "tiny"), "know-consequences"
    )


def test_a_stream_that_is_multiplied_anywhere_in_the_sum_is_told() -> None:
    assert "the stream itself is multiplied" in plain(committed("zaya", "tiny"), "know-consequences")
    for family in ("granite", "llama", "gemma4_text"):
        assert "the stream itself is multiplied" not in plain(committed(family, "tiny"), "know-consequences")


def test_two_rows_of_one_name_are_told_once() -> None:
    text = plain(committed("beam", "tiny"), "know-adding")
    assert "mlp_output and mlp_output" not in text and "attention_output and mlp_output are multiplied" in text


def test_a_stream_that_is_not_there_is_told_under_its_name_in_transformerlens_too() -> None:
    said = "no stream between them (no layer_mid, TransformerLens's blocks.{i}.hook_resid_mid)"
    for family, slug, lacks in (
        ("gpt_neox", "tiny", True),
        ("gpt_neox", "tiny-sequential", False),
        ("phi", "tiny", True),
    ):
        page = committed(family, slug)
        text = " ".join(plain(page, topic.id) for topic in what_to_know(page))
        assert (said in text) == lacks
