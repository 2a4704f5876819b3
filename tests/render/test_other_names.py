"""What a page says of other tools' names: which of them hold on it, and which stand for another tensor."""

from __future__ import annotations

from dataclasses import replace

import pytest

from probe import names
from probe.names.reach import stacked
from probe.render.know.order import paths
from probe.render.know.subject import Subject
from probe.render.other_names import told
from probe.render.values import tables
from tests.render.knowing import committed


def names_of(family: str, value: str, host: str = "model.layers[i]", twin: str = "tiny") -> dict[str, str | None]:
    """The names of a value on a page, each with how it differs."""
    subject = Subject(committed(family, twin))
    row = subject.value(host, value)
    assert row is not None
    return {one.name.name: one.differs for one in told(subject, row)}


def differing(family: str, value: str, host: str = "model.layers[i]") -> set[str]:
    return {name for name, differs in names_of(family, value, host).items() if differs}


ATTENTION, MLP = "model.layers[i].self_attn", "model.layers[i].mlp"


@pytest.mark.parametrize(
    ("family", "value", "host", "same", "different"),
    [
        ("llama", "attention_queries", ATTENTION, {"hook_rot_q"}, {"hook_q"}),
        ("gpt2", "attention_queries", ATTENTION, {"hook_q"}, set()),
        ("deepseek_v3", "attention_keys", ATTENTION, {"hook_k"}, {"hook_rot_k"}),
        ("granite", "mlp_output", MLP, {"mlps_output[i]"}, {"hook_mlp_out"}),
        ("gemma2", "mlp_output", MLP, {"hook_mlp_out"}, {"mlps_output[i]"}),
        ("bloom", "attention_output", ATTENTION, {"hook_attn_out"}, {"attentions_output[i]"}),
        ("qwen3_next", "attention_head_outputs", ATTENTION, set(), {"hook_z"}),
        ("llama", "mlp_input", "model.layers[i]", {"hook_in", "mlps_input[i]"}, {"hook_mlp_in"}),
        ("olmo2", "mlp_input", "model.layers[i]", {"hook_in", "hook_mlp_in", "mlps_input[i]"}, set()),
    ],
)
def test_a_name_stands_for_another_tensor_where_the_familys_quirks_say_so(
    family: str, value: str, host: str, same: set[str], different: set[str]
) -> None:
    found = names_of(family, value, host)
    ends = {name.rpartition(".")[2]: differs for name, differs in found.items()}
    assert {name for name, differs in ends.items() if differs} == different
    assert {name for name, differs in ends.items() if not differs} - {"attentions_output[i]"} == same


def test_no_name_where_the_tool_has_no_adapter_or_does_not_find_the_module() -> None:
    assert set(names_of("dbrx", "layer_output")) == {"layers_output[i]"}
    assert set(names_of("mamba2", "layer_output")) == {"blocks.{i}.hook_resid_post"}
    assert "mlps_input[i]" not in names_of("llama4_text", "mlp_input")
    assert "blocks.{i}.hook_attn_in" not in names_of("deepseek_v3", "attention_norm_output")
    assert not names_of("phi", "mlp_norm_output"), "one norm serves both, and its name is the first's"


def test_a_mixers_values_have_no_names_of_an_attentions() -> None:
    assert not names_of("qwen3_next", "attention_output", "model.layers[i].linear_attn")


@pytest.mark.parametrize(
    ("path", "found"),
    [("model.layers.{i}", True), ("transformer.h.{i}", True), ("model.decoder.layers.{i}", True)]
    + [("backbone.layers.{i}", False), ("rwkv.blocks.{i}", False), ("{i}", False)],
)
def test_the_blocks_that_nnterp_finds(path: str, found: bool) -> None:
    assert stacked(path) is found


def test_every_condition_of_a_name_is_a_quirk_that_is_measured() -> None:
    from probe.experiments import QUIRKS

    known = {quirk.slug for quirk in QUIRKS if quirk.about == "text"}
    slugs = {unless.quirk for name in names.NAMES for unless in name.unless} | {name.needs for name in names.NAMES}
    assert slugs - {None, names.ROTARY} <= known


@pytest.mark.parametrize(
    ("verdict", "steps"),
    [
        ("yes", "projection, rotary, norm (post-rotary)"),
        ("no", "projection, norm, rotary (post-rotary)"),
        ("n/a", "projection, norm and rotary (post-rotary; their order: either)"),
        (None, "projection, norm and rotary (post-rotary; their order: not examined)"),
    ],
)
def test_the_order_of_norm_and_rotary_is_told_as_it_was_measured(verdict: str | None, steps: str) -> None:
    page = committed("qwen3", "tiny")
    found = [e for e in page.record.experiments if e.slug != "norm-after-rotary"]
    blocks = list(range(len(page.record.blocks))) if verdict == "yes" else []
    if verdict is not None:
        like = {"slug": "norm-after-rotary", "verdict": verdict, "blocks": blocks, "statement": "Either."}
        found.append(found[0].model_copy(update=like))
    subject = Subject(replace(page, record=page.record.model_copy(update={"experiments": found})))
    assert [path.words for path in paths(subject, "attention_keys")] == [steps]


def test_a_row_tells_the_names_and_what_stands_before_it() -> None:
    rows = {row.name: dict(row.card) for host in tables(committed("gemma2", "tiny"), False) for row in host.rows}
    assert rows["layer_mid"]["TransformerLens"] == "<code>blocks.{i}.hook_resid_mid</code>"
    assert "nnterp" not in rows["layer_mid"]
    assert "another tensor: as projected" in rows["attention_queries"]["TransformerLens"]
    assert rows["attention_queries"]["read behind"] == "projection, rotary (post-rotary)"
