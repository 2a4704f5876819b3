"""The tables people ask for: made where the record holds what they need, and right where they are made."""

from __future__ import annotations

import re
from typing import Any

import pytest

from probe.render.answers import Lookup
from probe.render.know.subject import Subject
from probe.render.lookups import lookups
from probe.render.other_names import told
from probe.render.places import is_served
from probe.render.standing import Standing
from probe.schema import Element, Entries, Fact, Output, Returned, Weight
from tests.render.knowing import COMMITTED, FAMILIES, changed, committed


def tables(family: str, page: Standing) -> dict[str, Lookup]:
    found = lookups(FAMILIES[family], page)
    return {table.id: table for table in found.tables} if found else {}


def cells(table: Lookup) -> list[list[str]]:
    return [[re.sub(r"<[^>]+>", "", cell) for cell in row] for row in table.rows]


@pytest.mark.parametrize(("family", "slug", "page"), COMMITTED, ids=[f"{f}-{s}" for f, s, _ in COMMITTED])
def test_every_row_has_a_cell_for_each_head(family: str, slug: str, page: Standing) -> None:
    found = tables(family, page)
    assert {"l-terms", "l-paths"} <= set(found)
    assert ("l-returns" in found) == bool(page.record.returned)
    for table in found.values():
        assert table.rows and all(len(row) == len(table.head) for row in table.rows)
        assert all(row[0] for row in table.rows), table.id
        assert all(any(column) for column in zip(*table.rows, strict=True)), f"an empty column in {table.id}"


def test_a_table_of_many_columns_or_of_long_words_is_told_apart() -> None:
    found = {name: tables(name, committed(name, "tiny")) for name in ("llama", "xglm")}
    rooms = {(name, id): table.room for name, all in found.items() for id, table in all.items()}
    assert [rooms["llama", id] for id in ("l-paths", "l-hidden-states", "l-terms")] == ["", "four", "many"]
    assert (rooms["llama", "l-returns"], rooms["xglm", "l-returns"]) == ("four", "many")


def test_hidden_states_are_counted_from_what_enters_block_0() -> None:
    page = committed("llama", "tiny")
    last = len(page.record.blocks)
    found = [row[:2] for row in cells(tables("llama", page)["l-hidden-states"])]
    assert found[0] == ["hidden_states[0]", "layers[0].layer_input"]
    assert found[1] == ["hidden_states[1]", "layers[0].layer_output"]
    assert found[-1] == [f"hidden_states[{last}]", "final_norm_output"]


def test_every_hidden_state_has_the_name_that_its_values_card_has() -> None:
    rows = cells(tables("gemma2", committed("gemma2", "tiny"))["l-hidden-states"])
    assert rows[0][3] == "blocks.0.hook_resid_pre" and rows[-1][3] == "ln_final.hook_out"
    assert all(row[3] for row in rows)


def test_what_the_head_reads_is_its_input_where_no_module_returns_it() -> None:
    found = tables("nanochat", committed("nanochat", "tiny"))
    last = cells(found["l-hidden-states"])[-1]
    assert last[1:3] == ["final_norm_output", "lm_head input"]
    readers = {row[0]: row[-1] for row in cells(tables("openai-gpt", committed("openai-gpt", "tiny"))["l-norms"])}
    assert readers["final_norm_output"] == "lm_head"


@pytest.mark.parametrize(
    ("groups", "says"),
    [((8, 4), "bias within 4 of 8 groups by the sum of the two best)"), ((1, 1), "gate.e_score_correction_bias) ==")],
)
def test_a_choice_among_groups_has_the_checkpoints_own_numbers(groups: tuple[int, int], says: str) -> None:
    page = committed("deepseek_v3", "deepseek-ai--DeepSeek-V3")
    own = dict(zip(("n_group", "topk_group"), groups, strict=True))
    config = [row.model_copy(update={"value": own.get(row.name, row.value)}) for row in page.record.config]
    table = tables("deepseek_v3", changed(page, config=config))["l-scoring"]
    [equation] = [row[1] for row in cells(table) if row[0] == "expert_indices"]
    assert says in equation and "2 of 4" not in equation
    twin = tables("deepseek_v3", committed("deepseek_v3", "tiny"))["l-scoring"]
    assert "within 2 of 4 groups" in str(twin.rows)


def test_norms_inside_sublayers_have_a_table() -> None:
    page = committed("kimi_k2", "tiny")
    columns: dict[str, list[Any]] = {
        "norms": ["self_attn.kv_a_layernorm", "self_attn.q_norm", "mixer.norm"],
        "over": [28, page.record.sizes["head_dim"], 64],
        "groups": [1, 6, 3],
        "gains": [28, page.record.sizes["head_dim"], 192],
        "gain": ["weight", "1 + weight", "weight"],
        "gated": [False, False, True],
        "to": ["mean square", "variance", None],
        "added": [1e-6, 1e-5, None],
        "entries": [None, "rms_norm_eps", None],
        "fixed": [True, False, None],
    }
    fact = Fact(name="inner_norms", label="Norms", value=3, measured=columns, statement="There are some.")
    rows = cells(tables("kimi_k2", changed(page, facts=[fact]))["l-inner-norms"])
    assert rows == [
        [
            "self_attn.kv_a_layernorm",
            "all that it takes of a token",
            "no",
            "weight",
            "1e-6, whatever the config has, to the mean square",
            "",
        ],
        [
            "self_attn.q_norm",
            "each head by itself",
            "yes",
            "1 + weight, shared by all",
            "1e-5, rms_norm_eps, to the variance",
            "",
        ],
        [
            "mixer.norm",
            "groups of channels, each by itself",
            "",
            "weight, another for each",
            "not told",
            "takes a gate",
        ],
    ]


def test_hidden_states_that_are_not_one_more_than_blocks_have_no_table() -> None:
    page = committed("llama", "tiny")
    facts = [f.model_copy(update={"value": f.value + 1}) if f.name == "hidden_states" else f for f in page.record.facts]
    assert "l-hidden-states" not in tables("llama", changed(page, facts=facts))


def test_a_contribution_is_not_its_modules_return_where_a_norm_follows() -> None:
    rows = {row[0]: row for row in cells(tables("gemma4_text", committed("gemma4_text", "tiny"))["l-terms"])}
    assert rows["attention_output"][1] == "model.layers.{i}.self_attn"
    assert rows["attention_output"][2] == "the output of the norm model.layers.{i}.post_attention_layernorm"
    rows = {row[0]: row for row in cells(tables("llama", committed("llama", "tiny"))["l-terms"])}
    assert rows["attention_output"][2] == "its return, element 0" and rows["mlp_output"][2] == "its return"


def test_borrowed_keys_and_values_are_listed_by_their_lender() -> None:
    table = tables("gemma4_text", committed("gemma4_text", "tiny"))["l-borrowing"]
    found = [e for e in committed("gemma4_text", "tiny").record.experiments if e.slug == "borrowed-kv"]
    assert [int(row[0][7:-1]) for row in cells(table)] == found[0].measured["lenders"]
    rows = cells(tables("gemma4_text", committed("gemma4_text", "google--gemma-4-E2B-it"))["l-borrowing"])
    assert [(row[0], row[2]) for row in rows] == [
        ("layers[13]", "15–18, 20–23, 25–28, 30–33"), ("layers[14]", "19, 24, … 34 (every 5th)")
    ]  # fmt: skip
    assert "l-borrowing" not in tables("llama", committed("llama", "tiny"))


def test_the_routers_values_stand_with_their_positions_and_both_numbers() -> None:
    table = tables("gemma4_text", committed("gemma4_text", "tiny-moe"))["l-router"]
    rows = {row[0]: row[1] for row in cells(table)}
    assert rows["expert_indices"].endswith("arguments, position 1")
    assert rows["expert_weights"].endswith("arguments, position 2")
    sizes = committed("gemma4_text", "tiny-moe").record.shapes[0].sizes
    assert f"{sizes['num_experts']} experts in all, {sizes['top_k']} chosen" in table.lead


def test_weights_are_told_with_the_part_of_each_head() -> None:
    fused = Weight(
        path="h.{i}.attn.c_attn.weight", yields=["attention_queries", "attention_keys"], shape=[8, 16],
        blocks=[0, 1, 2], axis=1, counts={"attention_queries": 2, "attention_keys": 2},
        layout="queries 2 × 4, keys 2 × 4",
        parts={"attention_keys": "[:, h * 4 + 8:h * 4 + 12]", "attention_queries": "[:, h * 4:h * 4 + 4]"},
        statement="Found.",
    )  # fmt: skip
    shared = Weight(path="q_a.weight", yields=["attention_queries"], shape=[4, 8], blocks=[0], statement="All heads.")
    page = changed(committed("llama", "tiny"), weights=[fused, shared])
    assert cells(tables("llama", page)["l-projections"]) == [
        [
            "h.{i}.attn.c_attn.weight", "[8, 16]", "axis 1: queries 2 × 4, keys 2 × 4",
            "queries [:, h * 4:h * 4 + 4] and keys [:, h * 4 + 8:h * 4 + 12]", "every block",
        ],
        ["q_a.weight", "[4, 8]", "All heads.", "", "block 0"],
    ]  # fmt: skip


def test_returns_are_told_position_by_position() -> None:
    logits = "model.layers[i].mlp.router_logits"
    router = Returned(
        path="layers.{i}.mlp.router", module="Router", blocks=[0, 1, 2, 3], type="tuple",
        elements=[
            Element(position=0, type="Tensor", shape=[35, 8], value=logits),
            Element(position=1, type="Tensor", shape=[35, 8], made="softmax(router_logits)"),
            Element(position=2, type="NoneType"),
        ],
    )  # fmt: skip
    page = changed(committed("gpt_oss", "tiny"), returned=[router])
    found = tables("gpt_oss", page)
    told = ["Tensor [35, 8], router_logits", "Tensor [35, 8], softmax(router_logits)", "None"]
    assert [row[1:3] for row in cells(found["l-router-returns"])] == [[str(k), what] for k, what in enumerate(told)]
    assert cells(found["l-returns"])[0][2] == f"tuple of 0: {told[0]}; 1: {told[1]}; 2: None"


def test_outputs_are_told_with_the_values_and_blocks_of_their_entries() -> None:
    pattern = Entries(value="model.layers[i].self_attn.attention_probabilities", entries=[0, 1], blocks=[1, 2])
    logits = Entries(value="model.layers[i].mlp.router_logits", made="softmax(router_logits)", entries=[1], blocks=[1])
    routed = Output(
        flag="output_router_logits", accepted=True, field="router_logits", type="tuple", length=3, shapes=[[35, 8]],
        equals=[logits], statement="Three.",
    )  # fmt: skip
    flag, said = "output_attentions", "Two."
    rows = [
        Output(flag=flag, accepted=True, load="default", statement="None."),
        Output(flag=flag, accepted=True, field="attentions", equals=[pattern], load="eager", statement=said),
        Output(flag="use_cache", accepted=True, field="cache", missing=[0], statement="A cache."),
        routed,
    ]
    page = changed(committed("llama", "tiny"), outputs=rows)
    assert cells(tables("llama", page)["l-outputs"]) == [
        [flag, "under the default attention", "None.", "", ""],
        [flag, "under eager", "Two.", "entries 0–1: attention_probabilities of blocks 1–2", ""],
        ["use_cache", "", "A cache.", "", "0"],
        [
            routed.flag,
            "",
            "Three.",
            "entry 1: softmax(router_logits) of block 1; entries 0, 2: none of the values read",
            "",
        ],
    ]


def test_paths_are_given_for_every_architecture_of_the_family() -> None:
    table = tables("gemma4_text", committed("gemma4_text", "tiny"))["l-paths"]
    assert set(table.head[1:]) >= {"Gemma4ForConditionalGeneration", "Gemma4ForCausalLM"}
    blocks = next(row for row in cells(table) if row[0] == "model.layers[i]")
    assert set(blocks[1:]) >= {"model.layers.{i}", "model.language_model.layers.{i}"}


def test_the_block_that_a_projector_reads_is_told_from_the_end_with_the_row_it_leaves_out() -> None:
    page = committed("llava", "tiny")
    assert page.record.images is not None
    stations = [
        row.model_copy(update={"takes": [1], "dropped": "first"})
        if row.path.endswith("projector") and row.side == "in"
        else row
        for row in page.record.images.stations
    ]
    images = page.record.images.model_copy(update={"stations": stations})
    rows = cells(tables("llava", changed(page, images=images))["l-images"])
    said = [row[3] for row in rows if row[0].endswith("projector") and row[1].startswith("pre-hook")]
    assert said == ["what leaves the encoder&#39;s block 1, the last but one, without its first row"]


def test_what_norms_add_is_the_checkpoints_own_entry() -> None:
    page = committed("llama", "meta-llama--Llama-3.1-8B-Instruct")
    assert page.twin is not None
    measured = {"norms": ["One", "Two", "One"], "added": [0.25, 0.25, 0.5], "entries": ["rms_norm_eps"] * 2 + [None]}
    measured["to"] = ["variance", "mean square", "mean square"]
    facts = [Fact(name="norm_epsilon", label="Added", value=0.5, measured=measured, statement="So it is.")]
    behind = Standing(page.record, page.twin.model_copy(update={"facts": facts}), page.twin_uri, "../")
    lead = str(tables("llama", behind)["l-norms"].lead)
    own = (
        "add 1e-5, <code>rms_norm_eps</code>, (<code>One</code> and <code>Two</code>) or 0.5 (<code>One</code>) to the "
        "mean square or the variance"
    )
    assert own in lead and "0.25" not in lead


def test_a_norms_readers_stand_beside_it_and_inner_norms_have_rows() -> None:
    page = committed("deepseek_v3", "tiny")
    norms = {"q_b_proj": "self_attn.q_a_layernorm", "q_a_proj": "input_layernorm"}
    rows = [
        row.model_copy(update={"reads": f"model.layers.{{i}}.{norms[name]}"})
        if (name := row.path.rpartition(".")[2]) in norms
        else row.model_copy(update={"reads": None})
        for row in page.record.returned
    ]
    table = tables("deepseek_v3", changed(page, returned=rows))["l-norms"]
    read_by = {str(row[1].striptags()): str(row[-1].striptags()) for row in table.rows}
    assert table.head[-1] == "read by"
    assert read_by["model.layers.{i}.input_layernorm output"] == "self_attn.q_a_proj"
    assert read_by["model.layers.{i}.self_attn.q_a_layernorm output"] == "self_attn.q_b_proj"
    assert read_by["model.norm output"] == "no module with a matrix, as it is"
    without = [row.model_copy(update={"reads": None}) for row in rows]
    assert "read by" not in tables("deepseek_v3", changed(page, returned=without))["l-norms"].head


def test_a_norm_of_two_values_has_its_readers_in_both_rows() -> None:
    rows = {row[0]: row[-1] for row in cells(tables("phi", committed("phi", "tiny"))["l-norms"])}
    assert rows["mlp_norm_output"] == rows["attention_norm_output"]
    assert "mlp.fc1" in rows["mlp_norm_output"] and "no value" not in rows


@pytest.mark.parametrize(("family", "under"), [("gpt2", "variance"), ("llama", "mean square")])
def test_a_norm_that_subtracts_the_mean_adds_to_the_variance(family: str, under: str) -> None:
    assert f"to the {under} under the root" in tables(family, committed(family, "tiny"))["l-norms"].lead


@pytest.mark.parametrize(
    ("family", "told"),
    [
        ("llama", "post_attention_layernorm stands in front of mlp, in spite of its name"),
        ("glm4", "post_attention_layernorm stands in front of mlp, in spite of its name"),
        ("gemma2", "norms what self_attn returns, before the add; in front of mlp stands pre_feedforward_layernorm."),
        ("lfm3", "norms what conv and self_attn return, before the add; in front of feed_forward stands ffn_norm."),
        ("olmo2", "norms what self_attn returns, before the add; in front of mlp stands no norm."),
    ],
)
def test_a_norm_named_after_a_sublayer_is_told_by_what_it_norms(family: str, told: str) -> None:
    lead = tables(family, committed(family, "tiny"))["l-norms"].lead.striptags()
    assert lead.count(told) == 1 and lead.count("in front of") == 1


@pytest.mark.parametrize("family", ["kimi_k2", "llava"])
def test_rows_by_tool_say_which_rows_and_tell_the_tower_from_what_follows(family: str) -> None:
    page = committed(family, "tiny")
    table = tables(family, page)["l-tools"]
    rows = {row[0]: row[1:] for row in cells(table)}
    assert len(table.head) == 4
    stations = page.record.images.stations if page.record.images else []
    assert sum(int(cell.split()[0]) for cell in rows["PyTorch, a module or an operation"][1:]) == len(stations)
    served = [value for value in page.record.values if is_served(value)]
    named = {v.name for v in served if any(t.name.tool == "nnterp" and not t.differs for t in told(Subject(page), v))}
    found = re.fullmatch(r"\d+ of \d+(: |, not )(.*)", rows["nnterp"][0])
    assert found
    wanted = named if found[1] == ": " else {value.name for value in served} - named
    assert set(re.split(r", | and ", found[2])) == wanted
