"""Comparisons: columns, their alignment, and which pages are made beforehand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import combinations

from probe.render.catalog import Stored, read
from probe.render.compare.column import Column, Drawn, Group, Row, ShapeColumn, column, named
from probe.render.compare.pages import address, pairs
from probe.render.compare.table import diagram, facts
from probe.render.text import some_blocks
from probe.store import records_dir
from tests.render.conftest import ROOT, Site

FAMILY = read(records_dir())["jamba"]


def made(*drawn: tuple[str, ...], rows: list[Row] | None = None, title: str = "T", checkpoint: str = "c") -> Column:
    """A column whose pieces have these roles."""
    pieces = [Drawn(rows=list(roles), svg=f"<svg>{' '.join(roles)}</svg>") for roles in drawn]
    shape = ShapeColumn(label="l", blocks="every block", pieces=pieces)
    groups = [Group(name="Values", rows=rows or [])]
    return Column(page="p", title=title, checkpoint=checkpoint, shape=0, shapes=[shape], groups=groups)


def spans(*columns: Column) -> list[tuple[str, list[tuple[int, bool]]]]:
    rows = diagram(columns, [0] * len(columns))
    return [(row.role, [(cell.span, cell.svg is not None) for cell in row.cells]) for row in rows]


def test_a_block_with_one_sublayer_stands_beside_one_with_two() -> None:
    assert spans(made(("in",), ("mix",), ("out",)), made(("in",), ("mix",), ("feed",), ("out",))) == [
        ("in", [(1, True), (1, True)]),
        ("mix", [(1, True), (1, True)]),
        ("feed", [(1, False), (1, True)]),
        ("out", [(1, True), (1, True)]),
    ]


def test_sublayers_that_join_at_one_add_stand_beside_what_others_have_in_between() -> None:
    parallel, sequential = (
        made(("in",), ("mix", "feed"), ("out",)),
        made(("in",), ("mix",), ("branch",), ("feed",), ("out",)),
    )
    assert spans(parallel, sequential) == [
        ("in", [(1, True), (1, True)]),
        ("mix", [(3, True), (1, True)]),
        ("branch", [(1, True)]),
        ("feed", [(1, True)]),
        ("out", [(1, True), (1, True)]),
    ]


def test_facts_are_told_apart_by_what_differs_and_what_is_lacking() -> None:
    one = made(rows=[Row(key="a", html="x"), Row(key="b", html="y"), Row(key="c", html='<a href="1">z</a>')])
    other = made(
        rows=[
            Row(key="a", html="x"),
            Row(key="b", html="w"),
            Row(key="c", html='<a href="2">z</a>'),
            Row(key="d", html="v"),
        ]
    )
    [group] = facts([one, other])
    assert [(row.key, row.differs, row.lacks) for row in group.rows] == [
        ("a", False, False),
        ("b", True, False),
        ("c", False, False),
        ("d", True, True),
    ]
    assert group.differing == 2


def test_two_checkpoints_of_one_family_are_named_by_their_ids() -> None:
    assert named([made(checkpoint="a"), made(checkpoint="b"), made(title="U")]) == ["T · a", "T · b", "U"]


def test_every_column_is_published_and_its_links_lead_somewhere(site: Site) -> None:
    for family in read(site.records).values():
        for stored in family.pages:
            text = (site.directory / family.uri(stored) / "column.json").read_text()
            assert Column.model_validate(json.loads(text)) == column(family, stored)
            for page, _, anchor in set(
                re.findall(r'href=\\"@/([^#"\\]+)(#(?:(?:vision-)?block-\d+\.)?([\w-]+))', text)
            ):
                assert f'id="{anchor}"' in (site.directory / page / "index.html").read_text(), (page, anchor)


def test_a_vision_encoders_blocks_can_be_drawn_too(site: Site) -> None:
    text = (site.directory / "gemma4_text" / "column.json").read_text()
    made = Column.model_validate(json.loads(text))
    [shape] = [shape for shape in made.shapes if shape.label.startswith("vision encoder, ")]
    assert made.shapes[-1] == shape and not made.shapes[made.shape].label.startswith("vision")
    assert [piece.rows for piece in shape.pieces] == [["in"], ["mix"], ["feed"], ["out"]]
    drawn = "".join(piece.svg for piece in shape.pieces)
    assert 'href="@/gemma4_text/#v-vision-layers-self_attn-attention_keys"' in drawn
    assert 'href="@/gemma4_text/#vision-block-0.p-vision-' in drawn


def test_the_pairs_made_beforehand_are_of_families_of_different_kinds() -> None:
    families = read(ROOT / "site_src" / "records")
    found = pairs([families[name] for name in ("falcon_mamba", "gpt2", "llama", "mixtral", "qwen2_moe", "qwen3_next")])
    named = [tuple(family.name for family in pair) for pair in found]
    assert named == list(combinations(("falcon_mamba", "llama", "mixtral", "qwen3_next"), 2))
    alike = pairs([families[name] for name in ("gpt2", "llama", "mixtral")])
    assert len(alike) == 3, "families fill up where there are fewer kinds"


def test_every_pair_has_a_page(site: Site) -> None:
    found = pairs(list(read(site.records).values()))
    pages = [path for path in (site.directory / "compare").iterdir() if path.is_dir()]
    assert {f"compare/{path.name}/" for path in pages} == {address(pair) for pair in found}
    assert all("compare-table" in (path / "index.html").read_text() for path in pages)


def _row(stored: Stored, key: str) -> str:
    [found] = [row for group in column(FAMILY, stored).groups for row in group.rows if row.key == key]
    return re.sub(r"<(?!br)[^>]+>", "", found.html)


def test_a_value_on_two_classes_of_blocks_is_told_for_all_of_them() -> None:
    """Jamba's blocks are of two classes: places that are alike stand together, others on a line each."""
    record = FAMILY.stored["tiny"].record
    key, name = "layers[i].layer_output", "layer_output"
    mine = [value for value in record.values if value.name == name]
    assert len({value.module for value in mine}) == 2 and mine[0].hf
    assert _row(FAMILY.stored["tiny"], key) == "block out"
    moved = mine[1].model_copy(update={"hf": mine[0].hf.model_copy(update={"side": "in"})})
    lacking = mine[1].model_copy(update={"blocks": [], "location": None, "reason": "Not here."})
    for row, told in ((moved, "block out {0}<br>block in {1}"), (lacking, "block out {0}")):
        changed = record.model_copy(update={"values": [row if value is mine[1] else value for value in record.values]})
        where = [some_blocks(value.blocks, len(record.blocks)) for value in mine]
        assert _row(replace(FAMILY.stored["tiny"], record=changed), key) == told.format(*where)
