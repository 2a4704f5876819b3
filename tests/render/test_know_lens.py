"""What to know of a lens: what stands between the last block and the logits."""

from __future__ import annotations

import pytest

from probe.render.know.subject import Subject
from probe.render.lookups.stream import readout
from probe.render.standing import Standing
from probe.schema import Fact
from tests.render.knowing import changed, committed, plain


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


def test_the_factor_before_the_head_is_the_checkpoints_own() -> None:
    page = committed("minicpm3", "openbmb--MiniCPM3-4B")
    assert page.twin
    for measured, words, letter in (
        ({"entry": "dim_model_base", "over": "hidden_size"}, "0.1, dim_model_base / hidden_size", "0.1"),
        ({}, "a constant", "c"),
    ):
        factor = Fact(name="head_factor", label="Factor", value=0.5, measured=measured, statement="So.")
        naive = Fact(name="naive_lens", label="Naive", value=1.0, statement="Norm and head alone miss.")
        told = Standing(page.record, page.twin.model_copy(update={"facts": [factor, naive]}), page.twin_uri, "../")
        text = plain(told, "know-lens")
        assert f"is multiplied by {words} ({letter} * lm_head(final_norm_output) == lm_head_output)" in text
        assert "On the twin norm and head alone miss." in text
        table = readout(Subject(told))
        assert table is not None and table.rows[1][2].striptags().startswith(f"{letter} * lm_head(")
        assert "On the twin norm and head alone miss." in table.lead


@pytest.mark.parametrize(
    ("family", "slug", "by", "equation"),
    [
        ("gemma2", "tiny", "pass a tanh at ±30", "30 * tanh(lm_head_output / 30)"),
        ("granite", "ibm-granite--granite-3.3-8b-instruct", "are divided by 16", "lm_head_output / 16"),
        ("cohere", "tiny", "are multiplied by 0.0625", "0.0625 * lm_head_output"),
    ],
)
def test_what_follows_the_head_is_an_equation_with_its_number(family: str, slug: str, by: str, equation: str) -> None:
    page = committed(family, slug)
    text = plain(page, "know-lens")
    assert by in text and f"({equation} == logits)" in text
    table = readout(Subject(page))
    assert table is not None and f"{equation} == logits" in table.lead
