"""What to know: the four questions are answered on every page, and each answer follows the record."""

from __future__ import annotations

import re
from typing import Any

import pytest

from probe.render.catalog import Family, Stored, read
from probe.render.know import what_to_know
from probe.render.know.subject import Subject
from probe.render.know.terms import terms
from probe.render.standing import Standing
from probe.render.text import row_id
from probe.schema import Fact, Images, Row, Station
from probe.store import file_stem, records_dir
from tests.render import fixture

ASKED = ("know-adding", "know-lens", "know-blocks", "know-loading")
FAMILIES = read(records_dir())


def standing(family: Family, stored: Stored) -> Standing:
    record = stored.record
    behind = family.stored.get(file_stem(record.evidence.twin)) if record.evidence else None
    return Standing(record, behind.record if behind else None, family.uri(behind) if behind else None, "../")


COMMITTED = [(f.name, s.slug, standing(f, s)) for f in FAMILIES.values() for s in f.pages]
FIXTURE = [(r.family, file_stem(r.checkpoint.id), Standing(r, None)) for r in fixture.records()]
every_page = pytest.mark.parametrize(
    "page", [p for *_, p in [*COMMITTED, *FIXTURE]], ids=[f"{f}-{s}" for f, s, _ in [*COMMITTED, *FIXTURE]]
)


def committed(family: str, slug: str) -> Standing:
    return standing(FAMILIES[family], FAMILIES[family].stored[slug])


def plain(page: Standing, topic: str) -> str:
    """A topic's sentences as a reader sees them; empty where the page has no such topic."""
    found = next((t for t in what_to_know(page) if t.id == topic), None)
    text = re.sub(r"<[^>]+>", "", " ".join(found.sentences)) if found else ""
    return text.replace("&#39;", "'").replace("&gt;", ">").replace("&lt;", "<")


def changed(page: Standing, **update: Any) -> Standing:
    """The page of a record that says something else."""
    return Standing(page.record.model_copy(update=update), page.twin)


@every_page
def test_the_four_questions_are_answered(page: Standing) -> None:
    topics = {topic.id: topic for topic in what_to_know(page)}
    for name in ASKED:
        assert topics[name].sentences, name


@every_page
def test_sentences_are_whole_and_their_links_lead_to_rows(page: Standing) -> None:
    rows = {row_id(value, page.record.values) for value in page.record.values}
    for topic in what_to_know(page):
        for sentence in topic.sentences:
            text = re.sub(r"<a class=\"by\".*?</a>", "", sentence)
            text = re.sub(r"<[^>]+>", "", text).strip()
            assert text.endswith((".", "…")), text
            assert "  " not in text and " ." not in text and " ," not in text, text
            assert not re.search(r"\bNone\b(?!:)|(by|at|of|±) ?none\b|\{(?!i\}|num_hidden_layers)", text), text
            assert sentence.count("<code>") == sentence.count("</code>")
            for target in re.findall(r'href="#(v-[^"]+)"', sentence):
                assert target in rows


@every_page
def test_a_page_behind_which_nothing_ran_claims_no_measurement(page: Standing) -> None:
    if page.run is None:
        text = plain(page, "know-adding") + plain(page, "know-lens")
        assert "No run stands behind this page" in text and "not measured" in text
        assert "In the run" not in text and "In the twin's run" not in text and "exact:" not in text


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


def test_a_readout_that_fails_is_no_exact_lens() -> None:
    page = committed("llama", "tiny")
    assert plain(page, "know-lens").startswith("Yes, it is exact")
    broken = [
        i.model_copy(update={"holds": False, "max_abs_error": 3.0, "reason": "The head is biased."})
        if i.name == "readout"
        else i
        for i in page.record.identities
    ]
    assert plain(changed(page, identities=broken), "know-lens").startswith("No: ")
    gone = [i for i in page.record.identities if i.name != "readout"]
    assert plain(changed(page, identities=gone), "know-lens").startswith("No way")
    for name, said in (("lens_by_writing", "Yes, though no module does it alone. So"), ("logits_take_more", "No. So")):
        fact = Fact(name=name, label="Tail", value=0, statement="So it was.")
        assert plain(changed(page, identities=gone, facts=[fact]), "know-lens").startswith(said)


def test_a_stream_that_changes_between_blocks_is_not_called_exact() -> None:
    page = committed("llama", "tiny")
    identities = [i for i in page.record.identities if i.name != "stream between blocks"]
    fact = page.record.facts[0].model_copy(
        update={
            "name": "unkept_stream_between_blocks",
            "value": 0.2,
            "statement": "The usual `a == b` does not hold: the two sides differ by 0.2 on blocks [1, 2].",
        }
    )
    page = changed(page, identities=identities, facts=[*page.record.facts, fact])
    text = plain(page, "know-adding")
    assert "changed on its way" in text and "by exactly" not in text
    assert "plus all contributions" not in plain(page, "know-consequences")
    assert "on blocks 1–2." in plain(page, "know-unkept")


def test_what_needs_another_load_is_told_with_the_reason() -> None:
    text = plain(committed("llama", "tiny"), "know-loading")
    assert "Under the default sdpa, attention_scores and attention_probabilities cannot be read: the" in text
    assert "attn_implementation='eager'" in text and "differ by at most" in text
    page = committed("llama", "tiny")
    values = [v.model_copy(update={"needs": None, "reason": None}) for v in page.record.values]
    assert "Nothing is withheld" in plain(changed(page, values=values), "know-loading")


def test_facts_that_no_quirk_tells_are_told_where_they_matter() -> None:
    names = (
        "half_dtypes",
        "norm_rounding",
        "half_embedding_factor",
        "left_padding",
        "attention_masks",
        "expert_weights",
    )
    facts = [Fact(name=name, label=name, value=1, statement=f"So it is with {name}.") for name in names]
    page = changed(committed("gemma2", "tiny"), facts=facts)
    assert "So it is with half_dtypes. So it is with norm_rounding." in plain(page, "know-loading")
    assert "So it is with left_padding. So it is with attention_masks." in plain(page, "know-loading")
    assert "So it is with half_embedding_factor." in plain(page, "know-entrance")
    assert "So it is with expert_weights." in plain(page, "know-machinery")
    behind = committed("gemma", "google--gemma-2b-it")
    assert behind.twin is not None
    of_twin = Standing(behind.record, behind.twin.model_copy(update={"facts": facts}), behind.twin_uri, "../")
    assert "On the twin, whose stream is 96 wide, so it is with half_embedding" in plain(of_twin, "know-entrance")


def test_every_quirk_that_holds_is_told_once() -> None:
    for _, _, page in COMMITTED:
        said = [s for topic in what_to_know(page) for s in topic.sentences]
        for slug in Subject(page).quirks:
            assert sum(f"quirks/{slug}/" in sentence for sentence in said) <= 1, slug


def test_what_the_answer_of_a_later_sublayer_adds_is_told_where_sublayers_follow_one_another() -> None:
    assert "mlp_output is computed from the stream with attention_output already in it" in plain(
        committed("llama", "tiny"), "know-consequences"
    )
    assert "already in it" not in plain(committed("cohere", "tiny"), "know-consequences")
    assert "already in it" not in plain(committed("mamba2", "tiny"), "know-consequences")


def test_two_attentions_that_compute_different_things_are_not_called_rounding() -> None:
    page = committed("llama", "tiny")
    assert "no rounding" not in plain(page, "know-loading")
    for name, value, told in [
        ("eager_sdpa", 0.5, "a default load and an eager one compute different things, and"),
        ("eager_sdpa_padded", 0.5, "compute different things in a padded batch"),
    ]:
        facts = [f.model_copy(update={"value": value}) if f.name == name else f for f in page.record.facts]
        assert told in plain(changed(page, facts=facts), "know-loading")
    none = [f.model_copy(update={"value": 0.0}) if f.name.startswith("eager_sdpa") else f for f in page.record.facts]
    assert "give the same logits" in plain(changed(page, facts=none), "know-loading")


def test_the_last_hidden_state_is_said_to_be_the_last_stream_where_it_is() -> None:
    assert "is the last block's layer_output" in plain(committed("openai-gpt", "tiny"), "know-lens")
    assert "has passed the final norm already" in plain(committed("llama", "tiny"), "know-lens")


def test_where_the_last_stream_stands_among_the_hidden_states_is_told_as_it_was_found() -> None:
    page = committed("mamba", "tiny")
    assert "not among the hidden states" not in plain(page, "know-lens")
    found = page.record.facts[0].model_copy(
        update={"name": "last_stream_in_hidden_states", "statement": "`hidden_states[-2]` is the last block's output."}
    )
    text = plain(changed(page, facts=[*page.record.facts, found]), "know-lens")
    assert "has passed the final norm already; hidden_states[-2] is the last" in text


@pytest.mark.parametrize(
    ("normed", "chain"),
    [
        ("norm(model.join(layers[-1].layer_output))", "model.join, model.norm and then lm_head"),
        ("norm(0.5 * layers[-1].layer_output)", "a factor 0.5, model.norm and then lm_head"),
    ],
)
def test_what_stands_between_the_last_block_and_the_head_is_told_in_order(normed: str, chain: str) -> None:
    page = committed("llama", "tiny")
    identities = [
        i.model_copy(update={"expression": f"{normed} == final_norm_output"}) if i.name == "final norm" else i
        for i in page.record.identities
    ]
    text = plain(changed(page, identities=identities), "know-lens")
    assert f"Yes, it is exact: {chain}, applied" in text


def test_a_factor_or_a_module_in_front_of_the_head_is_part_of_the_lens() -> None:
    chain = "model.norm, a constant factor and then lm_head, applied to the last block's output, give"
    assert chain in plain(committed("minicpm3", "tiny"), "know-lens")
    page = committed("llama", "tiny")
    through = [
        i.model_copy(update={"expression": "lm_head(dense(final_norm_output)) == lm_head_output"})
        if i.name == "head"
        else i
        for i in page.record.identities
    ]
    text = plain(changed(page, identities=through), "know-lens")
    assert "Yes, it is exact: model.norm, dense and then lm_head, applied" in text
    unknown = page.record.facts[0].model_copy(update={"name": "unkept_head"})
    told = plain(changed(page, facts=[*page.record.facts, unknown]), "know-lens")
    assert "more than the final norm and the head stands between" in told


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


def test_blocks_of_no_one_step_are_given_by_their_ends() -> None:
    """Not by their first two, from which a reader would go on to blocks that are not meant."""
    page = FIXTURE[0][2]
    subject = Subject(changed(page, blocks=[0] * 52))
    assert subject.briefly(range(3, 52, 4)) == "blocks 3, 7, … 51 (every 4th)"
    uneven = [*range(0, 18, 2), *range(19, 34, 2), *range(36, 51, 3)]
    assert subject.briefly(uneven) == f"{len(uneven)} of 52 blocks: the first is 0, the last 48"


def test_what_bites_first_comes_first() -> None:
    ids = [topic.id for topic in what_to_know(committed("llama", "tiny"))]
    assert ids[:5] == ["know-adding", "know-consequences", "know-loading", "know-blocks", "know-lens"]


def test_a_contribution_made_beside_another_does_not_see_it() -> None:
    text = plain(committed("falcon_h1", "tiny"), "know-consequences")
    assert "Within a block mlp_output is computed from" in text
    assert "with linear_attn.attention_output and self_attn.attention_output already in it" in text
    assert "Nothing scales or norms the stream itself between its adds" in text


def test_behind_a_norm_of_the_stream_each_contribution_is_told_as_its_own_edit_went() -> None:
    text = plain(committed("minimax", "tiny"), "know-adding")
    assert "mlp_output is what model.layers.{i}.mlp returns: only the add comes after" in text
    assert re.search(r"attention_output on blocks 1, 3 are what [^:]*: the add comes after, and then a norm", text)
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


def test_modules_that_all_kinds_of_blocks_share_are_told_once() -> None:
    text = plain(committed("gemma3_text", "tiny"), "know-blocks")
    assert text.count("Gemma3Attention") == 1 and "all made of" in text
    assert "per_layer_output of the block itself" in plain(committed("gemma4_text", "tiny"), "know-blocks")
    assert plain(committed("kimi_k2", "tiny"), "know-blocks").count("made of") == 2


def test_two_rows_of_one_name_are_told_once() -> None:
    text = plain(committed("beam", "tiny"), "know-adding")
    assert "mlp_output and mlp_output" not in text and "attention_output and mlp_output are multiplied" in text


def test_a_number_of_the_twins_size_is_the_twins() -> None:
    assert "On the twin, whose queries are 20 wide, scores are" in plain(
        committed("kimi_k2", "moonshotai--Kimi-K2.5"), "know-machinery"
    )
    assert "On the twin" not in plain(committed("kimi_k2", "tiny"), "know-machinery")
    assert "In the twin's run noise" in plain(committed("kimi_k2", "moonshotai--Kimi-K2.5"), "know-adding")


def test_a_mixer_beside_an_attention_is_not_said_to_stand_for_it() -> None:
    assert "and by an attention too" in plain(committed("falcon_h1", "tiny"), "know-machinery")
    assert "and not by attention" in plain(committed("mamba2", "tiny"), "know-machinery")


def test_what_the_stream_takes_at_the_tokens_of_an_image_is_told() -> None:
    seen = "At the tokens of an image block 0 takes"
    assert f"{seen} vision.image_features" in plain(committed("gemma3_text", "tiny-vision"), "know-entrance")
    assert seen not in plain(committed("gemma3_text", "tiny"), "know-entrance")
    about = {"module": "Module", "side": "out", "element": "output", "shape": [1], "edits": True, "logits": 1.0}
    stations = [Station(path="join", enters=[-1], **about), Station(path="mergers.{i}", enters=[0, 1], **about)]
    page = changed(committed("llama", "tiny"), images=Images.model_construct(stations=stations))
    text = plain(page, "know-entrance")
    assert f"{seen} what join returns in place of the token's embedding." in text
    assert "What mergers.{i} gives is added to the stream at these tokens after blocks 0–1 of the 3, one each." in text


def test_the_blocks_of_an_encoder_that_are_read_are_told_as_the_checkpoint_has_them() -> None:
    page = committed("qwen3_vl_text", "Qwen--Qwen3-VL-2B-Instruct")
    assert page.twin is not None
    name = "vision_config.deepstack_visual_indexes"
    own, behind = ({"vision_config": [Row(name=name, value=value)]} for value in ([5, 11, 17], [0, 1, 2]))
    told = Standing(page.record.model_copy(update=own), page.twin.model_copy(update=behind), page.twin_uri, "../")
    assert f"one each. Here {name} has 5, 11 and 17." in plain(told, "know-entrance")
