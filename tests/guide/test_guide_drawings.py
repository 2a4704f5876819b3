"""The guide's pictures: their numbers are the code's, and they draw those numbers."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from probe.guide import results
from probe.guide.drawings import DRAWINGS
from probe.guide.measure import follow
from probe.guide.patterns import PATTERNS
from probe.render.guide.drawn import drawn
from probe.schema.guide import Drawing
from probe.snippets.code import Subject

KEPT = [(slug, drawing) for slug, found in results.read().patterns.items() for drawing in found.drawings]
RECTANGLE = re.compile(r"M([\d.]+) ([\d.]+)L([\d.]+) [\d.]+L[\d.]+ ([\d.]+)")


def made(kind: str, **numbers: Any) -> Drawing:
    axes = {"checkpoint": "org/name", "x": "position", "y": "block", "statement": "It is so."}
    return Drawing.model_validate({"kind": kind, **axes, **numbers})


def boxes(svg: str, look: str) -> list[tuple[float, ...]]:
    """Left, top, right, bottom of each rectangle of a look."""
    path = re.search(rf'<path class="{look}" d="([^"]*)"', svg)
    return [tuple(map(float, corner)) for corner in RECTANGLE.findall(path[1])] if path else []


@pytest.mark.parametrize(("slug", "drawing"), KEPT, ids=[f"{slug}-{d.checkpoint}" for slug, d in KEPT])
def test_a_kept_picture_is_well_formed_and_takes_its_colours_from_the_page(slug: str, drawing: Drawing) -> None:
    svg = str(drawn(drawing).svg(drawing.statement))
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img" and root.get("aria-label") == drawing.statement
    assert not re.search(r"#[0-9a-f]{3}|rgb\(|style=|href", svg)


def test_a_grid_has_block_0_at_the_foot_and_the_strength_of_each_number() -> None:
    svg = str(drawn(made("grid", ticks=["a", "b"], grid=[[1.0, 0.0], [-0.5, None]])).svg(""))
    [first], [second] = boxes(svg, "fill r-attention l10"), boxes(svg, "fill r-mark l5")
    assert first[0] == second[0] and first[1] > second[1]
    assert len(re.findall(r"fill r-\w+ l\d", svg)) == 2


def test_a_grid_of_words_has_the_answers_cells_in_another_colour_and_unlikely_words_without_one() -> None:
    grid, words = [[0.4, 0.04], [0.9, None]], [[" so", "it"], ["is", "is"]]
    svg = str(drawn(made("words", ticks=["a", "b"], grid=grid, words=words, marked="is")).svg(""))
    [first], [second] = boxes(svg, "fill r-flow l2"), boxes(svg, "fill r-attention l4")
    assert first[0] == second[0] and first[1] > second[1]
    assert len(re.findall(r"fill r-\w+ l\d", svg)) == 2
    assert re.findall(r'class="word"[^>]*>([^<]+)<', svg) == ["so", "it", "is", "is"]


def test_a_bar_is_as_long_as_its_number_and_hangs_where_it_is_below_zero() -> None:
    series = {"mlp_output": [1.0, 2.0], "attention_output": [-1.0, 0.0]}
    svg = str(drawn(made("bars", ticks=["0", "1"], series=series)).svg(""))
    up, down = boxes(svg, "fill r-mlp"), boxes(svg, "fill r-attention")
    heights = [abs(bottom - top) for _, top, _, bottom in up]
    assert heights[1] == pytest.approx(2 * heights[0], rel=1e-2) and len(down) == 1
    assert down[0][1] == pytest.approx(up[0][3], abs=0.1)  # one ends at zero where the other begins


def test_a_line_rises_where_its_numbers_do() -> None:
    svg = str(drawn(made("lines", ticks=["0", "1", "2"], series={"Paris": [0.1, 0.9, 0.5]})).svg(""))
    path = re.search(r'<path class="line r-attention" d="M([^"]*)"', svg)
    assert path
    heights = [float(point.split()[1]) for point in path[1].split("L")]
    assert heights[1] < heights[2] < heights[0]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.slug)
def test_a_pictures_numbers_are_what_the_code_left(pattern: Any) -> None:
    _, found = follow(pattern, Subject("llama", "tiny"))
    drawing = DRAWINGS[pattern.slug](found, "tiny")
    blocks = found["model"].num_layers
    if drawing.kind in ("grid", "words"):
        assert len(drawing.grid) == blocks and all(len(row) == len(drawing.ticks) for row in drawing.grid)
    else:
        assert all(len(row) == len(drawing.ticks) for row in drawing.series.values())
    if pattern.slug == "logit-lens":
        assert drawing.grid[1][-1] == pytest.approx(float(found["lens"][1, -1].softmax(-1).max()), abs=1e-4)
        assert drawing.words[-1][-1] == drawing.marked and len(drawing.words) == blocks
    if pattern.slug == "activation-patching":
        assert drawing.grid[-1][-1] == pytest.approx(1, abs=1e-3)
    if pattern.slug == "head-ablation":
        assert drawing.grid[2][1] == pytest.approx(float(found["lost"][2, 1]), abs=1e-4)
    if pattern.slug == "contributions":
        total = sum(map(sum, drawing.series.values()))
        assert total == pytest.approx(float(found["gives"][:-1].sum()), abs=1e-2)
