"""The tables people ask for: made where the record holds what they need, and right where they are made."""

from __future__ import annotations

import re

import pytest

from probe.render.answers import Lookup
from probe.render.lookups import lookups
from probe.render.standing import Standing
from tests.render.test_know import COMMITTED, FAMILIES, changed, committed


def tables(family: str, page: Standing) -> dict[str, Lookup]:
    found = lookups(FAMILIES[family], page)
    return {table.id: table for table in found.tables} if found else {}


def cells(table: Lookup) -> list[list[str]]:
    return [[re.sub(r"<[^>]+>", "", cell) for cell in row] for row in table.rows]


@pytest.mark.parametrize(("family", "slug", "page"), COMMITTED, ids=[f"{f}-{s}" for f, s, _ in COMMITTED])
def test_every_row_has_a_cell_for_each_head(family: str, slug: str, page: Standing) -> None:
    found = tables(family, page)
    assert {"l-terms", "l-returns", "l-paths"} <= set(found)
    for table in found.values():
        assert table.rows and all(len(row) == len(table.head) for row in table.rows)
        assert all(row[0] for row in table.rows), table.id


def test_hidden_states_are_counted_from_what_enters_block_0() -> None:
    page = committed("llama", "tiny")
    last = len(page.record.blocks)
    found = [row[:2] for row in cells(tables("llama", page)["l-hidden-states"])]
    assert found[0] == ["hidden_states[0]", "layers[0].layer_input"]
    assert found[1] == ["hidden_states[1]", "layers[0].layer_output"]
    assert found[-1] == [f"hidden_states[{last}]", "final_norm_output"]


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


def test_projections_are_told_with_the_heads_that_their_size_is_made_of() -> None:
    page = committed("llama", "HuggingFaceTB--SmolLM2-135M-Instruct")
    found = {row[0]: row[1:3] for row in cells(tables("llama", page)["l-projections"])}
    assert found == {
        "q_proj": ["[576, 576]", "out: 9 heads × 64"],
        "k_proj": ["[192, 576]", "out: 3 heads × 64"],
        "v_proj": ["[192, 576]", "out: 3 heads × 64"],
        "o_proj": ["[576, 576]", "in: 9 heads × 64"],
    }


def test_paths_are_given_for_every_architecture_of_the_family() -> None:
    table = tables("gemma4_text", committed("gemma4_text", "tiny"))["l-paths"]
    assert set(table.head[1:]) >= {"Gemma4ForConditionalGeneration", "Gemma4ForCausalLM"}
    blocks = next(row for row in cells(table) if row[0] == "model.layers[i]")
    assert set(blocks[1:]) >= {"model.layers.{i}", "model.language_model.layers.{i}"}
