"""The tables of values by host."""

from __future__ import annotations

from probe.render.standing import Standing
from probe.render.values import setup, tables
from probe.store import read_record
from tests.render.conftest import ROOT
from tests.render.knowing import committed


def test_blocks_that_all_values_of_a_host_are_on_are_told_once() -> None:
    record = read_record(ROOT / "site_src" / "records" / "nemotron_h" / "tiny.json")
    standing = Standing(record, None)
    told = {table.host: table for table in tables(standing, False)}
    mixer, block = told["model.layers[i].linear_attn"], told["model.layers[i]"]
    served = {tuple(v.blocks or ()) for v in record.values if v.host == mixer.host and v.blocks}
    assert len(served) == 1 and mixer.where.startswith("blocks ")
    assert not any(row.where for row in mixer.rows)
    assert block.where == "" and {bool(row.where) for row in block.rows} == {True, False}
    facts = {row.name: dict(row.card) for row in mixer.rows}
    assert str(facts["mixer_x"]["on"]) == mixer.where


def test_a_contribution_that_is_added_times_a_factor_says_so() -> None:
    told = {
        row.name: row.description
        for slug in ("tiny", "ibm-granite--granite-3.3-8b-instruct")
        for table in tables(committed("granite", slug), False)
        for row in table.rows
    }
    factor = "it is added times <code>residual_multiplier</code> (0.22)"
    assert all(told[name].endswith(factor) for name in ("attention_output", "mlp_output"))
    assert "it is added" not in told["layer_output"]
    assert "it is added" not in str(tables(committed("llama", "tiny"), False))


def test_every_snippet_links_to_what_it_stands_on() -> None:
    standing = committed("llama", "tiny")
    snippets = [
        text
        for table in tables(standing, False)
        for row in table.rows
        for key, text in row.card
        if key == "recipe" or key.startswith("without one")
    ]
    interfaces = [text for text in snippets if "AttentionInterface" in text]
    assert len(snippets) > len(interfaces) > 0
    assert all('<a href="#stands">' in text for text in snippets)
    assert "#stands" not in setup(standing.record)
