"""Words and figures."""

from __future__ import annotations

import pytest
from markupsafe import Markup

from probe.numerals import number, unit
from probe.render.text import (
    anchor,
    answer,
    block_list,
    breakable,
    cell,
    condition,
    figure,
    parameters,
    prose,
    some_blocks,
    whole,
)
from probe.schema import Value


@pytest.mark.parametrize(
    ("blocks", "text"),
    [
        ([0], "0"),
        ([0, 1, 2], "0–2"),
        ([0, 1, 3, 4], "0–1, 3–4"),
        ([3, 7, 11, 15], "3, 7, … 15 (every 4th)"),
        ([0, 2, 4, 6], "0, 2, … 6 (every 2nd)"),
        ([4, 9], "4, 9"),
    ],
)
def test_block_lists(blocks: list[int], text: str) -> None:
    assert block_list(blocks) == text


def test_a_unit_follows_its_number() -> None:
    assert [unit(1, "blocks"), unit(2, "blocks"), unit(0, "blocks"), unit(1, None)] == ["block", "blocks", "blocks", ""]
    assert [unit(1, "kinds of MLPs"), unit(2, "kinds of MLPs")] == ["kind of MLP", "kinds of MLPs"]


def test_the_value_of_a_fact_is_a_number_or_an_answer() -> None:
    assert [answer(True), answer(False), answer(1), answer(0.5)] == ["yes", "no", "1", "0.5"]


def test_blocks_in_words() -> None:
    assert some_blocks(None, 4) == ""
    assert some_blocks([], 4) == "no block"
    assert some_blocks([0, 1, 2, 3], 4) == "every block"
    assert some_blocks([2], 4) == "block 2"
    assert some_blocks([i for i in range(48) if i % 4 != 3], 48) == "all but 3, 7, … 47 (every 4th)"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (True, "true"),
        (1536, "1536"),
        (262144, "262,144"),
        (1e-6, "1e-6"),
        (30.0, "30"),
        (0.25, "0.25"),
        (10000.0, "10,000"),
        (1e6, "1,000,000"),
        (123456.7, "123,457"),
        (-3.402823e38, "-3.403e38"),
        (["a", "a", "b"], "a × 2, b"),
        ([1e4, 1e4, 2e-05], "10,000 × 2, 2e-5"),
        ([], "[]"),
        ("", '""'),
    ],
)
def test_figures(value: object, text: str) -> None:
    assert figure(value) == text


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("They differ by at most 5e-06 (float32).", "They differ by at most 5e-6 (float32)."),
        ("It sees the 262143 positions before it.", "It sees the 262,143 positions before it."),
        ("The base is 1,000,000, not 10000.0.", "The base is 1,000,000, not 10,000."),
        ("It holds 1,152 bytes on blocks 0, 2, 10.", "It holds 1152 bytes on blocks 0, 2, 10."),
        ("With torch 2.13.0 of `eps=1e-06`.", "With torch 2.13.0 of <code>eps=1e-06</code>."),
    ],
)
def test_a_records_sentence_has_its_numbers_as_the_tables_have_them(said: str, shown: str) -> None:
    assert prose(said) == shown


def test_no_line_ends_within_a_power_and_long_names_in_cells_break_at_their_joints() -> None:
    said = prose("Within 2e-6 (1.5e-7 at most), as `eps=1e-6` and v1e-3 are not.")
    shown = 'Within <span class="whole">2e-6</span> (<span class="whole">1.5e-7</span> at most), as '
    assert whole(said) == shown + "<code>eps=1e-6</code> and v1e-3 are not."
    path = Markup("<code>{}</code>").format('get_submodule("model.layers_0.mlp")')
    assert cell(path) == "<code>get_<wbr>submodule(&#34;model.<wbr>layers_0.<wbr>mlp&#34;)</code>"
    spaced = Markup("<code>router_logits == gate.weight.T @ mlp_input</code>")
    assert cell(spaced) == spaced, "a line ends between words of code, not within one that fits the next"
    path = 'model.<wbr><span class="whole">layers.{i}</span>.<wbr>mlp'
    link = Markup('<a href="#layers.{i}"><code>model.layers.{i}.mlp</code></a>')
    assert prose("`model.layers.{i}.mlp`") == whole(prose("`model.layers.{i}.mlp`")) == f"<code>{path}</code>"
    assert whole(link) == f'<a href="#layers.{{i}}"><code>{path}</code></a>', "a line ends before a name, not an index"
    assert cell(Markup("<code>layers.mlp</code>")) == "<code>layers.mlp</code>" and cell("a < b") == "a &lt; b"


def test_all_digits_are_kept_where_two_readings_are_compared() -> None:
    assert number(0.36364, None) == "0.36364" and number(2e-05, None) == "2e-5" and number(80593, None) == "80,593"


def test_anchors_tell_hosts_apart() -> None:
    hosts = ["model", "model.layers[i]", "model.layers[i].self_attn", "model.vision", "model.vision.layers[i]"]
    assert len({anchor(host, "layer_input") for host in hosts}) == len(hosts)
    assert anchor("model.layers[i].self_attn", "attention_keys") == "v-layers-self_attn-attention_keys"


def test_parameter_counts() -> None:
    assert parameters(5_123_000_000) == "5.123 B"
    assert parameters(134_515_008) == "134.5 M"
    assert parameters(9000) == "9,000"


def test_a_refusal_says_first_what_to_do() -> None:
    refused = Value.model_construct(module="Attention", needs="eager", lack="fused kernel", reason="It needs another.")
    told = "Load with attn_implementation='eager': under 'sdpa' "
    assert condition(refused, "sdpa") == told + "the attention is one fused kernel that never forms it."
    other = refused.model_copy(update={"lack": "another way"})
    assert condition(other, "sdpa") == told + "the forward of Attention goes another way, on which it is not formed."
    absent = Value.model_construct(module="MLP", needs=None, lack=None, reason="LlamaMLP has no router.")
    assert condition(absent, "sdpa") == "LlamaMLP has no router."
    assert condition(absent.model_copy(update={"reason": None}), "sdpa") is None


def test_a_long_name_may_break_behind_dots_and_underscores_and_nothing_in_it_is_markup() -> None:
    assert breakable("blocks.{i}.hook_<q>") == '<span class="whole">blocks.{i}</span>.<wbr>hook_<wbr>&lt;q&gt;'
    assert breakable("layers[i].self_attn.") == "layers[i].<wbr>self_<wbr>attn."
