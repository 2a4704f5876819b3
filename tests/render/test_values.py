"""The tables of values by host."""

from __future__ import annotations

from probe.render.standing import Standing
from probe.render.values import tables
from probe.store import read_record
from tests.render.conftest import ROOT


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
