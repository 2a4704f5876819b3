"""The records of both specimen families hold every value, layout, axes and location of the specimens' tables."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from probe.store import read_json, record_path

SPECIMENS = {
    "gemma4_text": "google/gemma-4-E2B-it",
    "llama4_text": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
}

UNCONDITIONAL = (
    "attention_queries attention_keys attention_values attention_head_outputs".split(),
    "read under the default attention as well as under eager, by a run of each",
)


def _rows() -> list[dict[str, str]]:
    with (Path(__file__).parent / "specimens.tsv").open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines, delimiter="\t"))


def _record(family: str) -> dict[str, Any]:
    return read_json(record_path(family, SPECIMENS[family]))


def _values(record: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    rows = [*record["values"], *record["vision"]["values"]]
    return {(row["host"], row["name"]): row for row in rows}


@pytest.mark.parametrize("row", _rows(), ids=lambda row: f"{row['family']}-{row['host']}-{row['name']}")
def test_a_row_of_the_specimens_tables_is_in_the_record(row: dict[str, str]) -> None:
    found = _values(_record(row["family"]))[row["host"], row["name"]]
    assert found["module"] == row["module"]
    assert found["layout"] == row["layout"]
    assert found["dims"] == row["dims"].split()
    assert (found["location"] or "") == row["location"]


@pytest.mark.parametrize("row", _rows(), ids=lambda row: f"{row['family']}-{row['host']}-{row['name']}")
def test_a_condition_of_the_specimens_is_one_that_was_measured(row: dict[str, str]) -> None:
    found = _values(_record(row["family"]))[row["host"], row["name"]]
    conditional = found["needs"] is not None or found["reason"] is not None
    if row["name"] in UNCONDITIONAL[0]:
        assert row["conditional"] == "yes"
        assert not conditional, UNCONDITIONAL[1]
    else:
        assert conditional == (row["conditional"] == "yes")


def test_the_specimens_sizes_are_the_records() -> None:
    gemma, llama = _record("gemma4_text"), _record("llama4_text")
    assert gemma["sizes"] == {
        "num_layers": 35,
        "hidden_size": 1536,
        "num_heads": 8,
        "num_kv_heads": 1,
        "head_dim": 256,
        "qk_head_dim": 256,
        "vocab_size": 262144,
        "intermediate_size": 6144,
    }
    assert gemma["vision"]["sizes"] == {
        "num_layers": 16,
        "vision_hidden_size": 768,
        "num_heads": 12,
        "head_dim": 64,
        "intermediate_size": 3072,
        "patch_size": 16,
    }
    assert len(llama["layer_types"]) == 48 and len(llama["vision"]["blocks"]) == 34


def test_the_blocks_of_gemma_4_e2b_are_the_specimens() -> None:
    record = _record("gemma4_text")
    full = [index for index, kind in enumerate(record["layer_types"]) if kind == "full_attention"]
    assert full == [4, 9, 14, 19, 24, 29, 34]
    lends = [record["shapes"][shape]["lends"] for shape in record["blocks"]]
    assert lends == ["own"] * 15 + ["borrowed"] * 20
    widths = record["block_sizes"]["intermediate_size"]
    assert widths == [6144] * 15 + [12288] * 20
    assert record["block_sizes"]["head_dim"][4] == 512
    identities = {shape["identity"] for shape in record["shapes"]}
    terms = "layers[i].input + self_attn.attention_output + mlp.mlp_output + per_layer_output"
    assert identities == {f"({terms}) * layer_scalar == layer_output"}
