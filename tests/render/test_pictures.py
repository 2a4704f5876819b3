"""Pictures as the site draws them: SVG that a page's colours and a reader without eyes can use."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from probe.render.catalog import Family, Stored
from probe.render.page import compose
from probe.render.pictures.canvas import Canvas
from probe.render.pictures.draw import svg
from probe.render.pictures.merged import distinct
from probe.render.pictures.scales import scale, written
from probe.render.templating import ROOT
from probe.schema import Picture, Record, Series
from tests.render import fixture

TRIANGLE = ["".join("1" if key <= query else "0" for key in range(28)) for query in range(28)]
WINDOW = ["".join("1" if query - 4 < key <= query else "0" for key in range(28)) for query in range(28)]


def _picture(kind: Any, **given: Any) -> Picture:
    plain = {"name": kind, "label": f"A {kind}", "axes": ["block", "length"], "statement": f"“{kind}” & <more>."}
    series = [Series(name=name, numbers=numbers) for name, numbers in given.pop("series", {}).items()]
    return Picture.model_validate({**plain, "kind": kind, "series": series, **given})


PICTURES = {
    "mask": _picture("mask", rows=WINDOW, axes=["key position", "query position"], marked={"image": [2, 7]}, step=20),
    "pattern": _picture("pattern", rows=["100 0 0", "99 1 0", "3 45 52"], ticks=["<bos>", " The", "\n"]),
    "rotary": _picture("rotary", series={"block 0": [1.0, 0.01, None, None], "block 1": [None] * 4}),
    "dense": _picture("rotary", series={"block 0": [10000 ** (-i / 128) for i in range(128)]}),
    "slopes": _picture("slopes", series={"every block": [0.5, 0.25, 0.00391]}),
    "load": _picture("load", series={f"block {i}": [float(i), 0.0, 7.0, 3.0] for i in range(40)}),
    "growth": _picture("growth", series={"layer_output": [2.0, 9000.0, 40.0], "mlp_output": [None, 4.0, 5.0]}),
    "scalars": _picture("scalars", series={"layer_scalar": [0.5, -0.25]}),
    "scales": _picture("scales", series={"factor of the scores": [1.0, 0.5, 0.333]}),
    "decay": _picture("decay", series={"a token": [0.9, 0.5, 0.01], "another token": [0.8, 0.6, 0.02]}, step=2),
    "passes": _picture("passes", series={"block 0": [0.0, 0.3, 0.6]}),
    "response": _picture("response", series={"taken": [0.1, 1e3, 1e7], "given": [0.1, 9.0, 9.0]}, ticks=["0.1", "1e7"]),
    "level": _picture("growth", series={"layer_output": [3.0]}),
}
each = pytest.mark.parametrize("name", PICTURES)


@each
def test_a_picture_is_svg_with_a_text_alternative(name: str) -> None:
    picture = PICTURES[name]
    drawn = svg(picture, picture.statement)
    root = ElementTree.fromstring(drawn)
    assert root.get("role") == "img" and root.get("aria-label") == picture.statement
    assert float(root.get("width") or 0) <= 340 and root.get("viewBox")
    assert all(number.isascii() and "nan" not in number for number in re.findall(r' (?:d|x|y)="([^"]*)"', drawn))
    width, height = (float(root.get(side) or 0) for side in ("width", "height"))
    for path in root.iter("path"):
        places = [tuple(map(float, pair.split())) for pair in re.findall(r"[ML]([^MLz]+)", path.get("d") or "")]
        assert all(-1 <= x <= width + 1 and -1 <= y <= height + 1 for x, y in places)
    assert len(gzip.compress(drawn.encode())) <= 4096


@each
def test_a_picture_has_its_looks_from_the_stylesheet_alone(name: str) -> None:
    """No colour, no style, no id, nothing from elsewhere: only classes that the stylesheets know."""
    drawn = svg(PICTURES[name], "")
    assert not re.search(r"#[0-9a-fA-F]{3}|rgb|style=|url\(|href|\bid=|<style|font|fill=|stroke=", drawn)
    sheets = "".join((ROOT / "site_src/assets" / name).read_text() for name in ("base.css", "parts/pictures.css"))
    used = {look for looks in re.findall(r'class="([^"]*)"', drawn) for look in looks.split()}
    assert {look for look in used if f".{look}" not in sheets} <= {"tick", "l10"}


def test_series_that_would_hide_each_other_are_one_under_both_names() -> None:
    rounded = {"blocks 0 and 2": [0.125, 0.0313, None], "block 1": [0.125, 0.0312, None]}
    other = {"block 3": [0.125, 0.031, 0.5], "block 4": [0.125, 0.02, None]}
    merged = distinct(_picture("slopes", series=rounded | other))
    assert [series.name for series in merged.series] == ["blocks 0 and 2, block 1", "block 3", "block 4"]
    assert merged.series[0].numbers == rounded["blocks 0 and 2"]
    rows = _picture("load", series={"block 0": [1.0, 2.0], "block 1": [1.0, 2.0]})
    assert distinct(rows) == rows


CHANGES: dict[str, dict[str, Any]] = {
    "mask": {"rows": TRIANGLE},
    "pattern": {"rows": ["100 0 0", "1 99 0", "3 45 52"]},
    "rotary": {"series": [Series(name="block 0", numbers=[1.0, 0.02, None, None])]},
    "slopes": {"series": [Series(name="every block", numbers=[0.5, 0.25, 0.125])]},
    "load": {"series": [Series(name="block 0", numbers=[1.0, 2.0, 3.0])]},
    "growth": {"series": [Series(name="layer_output", numbers=[2.0, 1.0, 4.0])]},
    "scalars": {"series": [Series(name="layer_scalar", numbers=[0.5, 0.25])]},
    "scales": {"series": [Series(name="factor of the scores", numbers=[1.0, 0.5, 0.25])]},
    "decay": {"step": 3},
    "passes": {"series": [Series(name="block 0", numbers=[0.0, 0.0, 0.6])]},
    "response": {"ticks": ["0.1", "1e6"]},
}


@pytest.mark.parametrize("name", CHANGES)
def test_other_numbers_draw_another_picture(name: str) -> None:
    picture = PICTURES[name]
    assert svg(picture.model_copy(update=CHANGES[name]), "") != svg(picture, "")
    assert svg(picture.model_copy(update={"label": "Other words", "blocks": [4]}), "") == svg(picture, "")


def test_a_mask_fills_the_cells_that_are_reached() -> None:
    root = ElementTree.fromstring(svg(_picture("mask", rows=["100", "110", "011"], axes=["key", "query"]), ""))
    [filled] = [path.get("d") or "" for path in root.iter("path") if path.get("class") == "fill r-attention"]
    corners = re.findall(r"M([\d.]+) ([\d.]+)L([\d.]+)", filled)
    left, top = float(corners[0][0]), float(corners[0][1])
    stretches = [((float(x) - left) / 5, (float(y) - top) / 5, (float(end) - float(x)) / 5) for x, y, end in corners]
    assert stretches == [(0, 0, 1), (0, 1, 2), (1, 2, 2)]


def test_a_shape_that_was_not_written_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    canvas = Canvas(20, 20)
    canvas.lines("line", [[(0, 0), (1, 1)]])
    canvas.text("tick", (1, 1), "a")
    monkeypatch.setattr(canvas._figure, "texts", [])
    with pytest.raises(ValueError, match="2 shapes were drawn and 1 found"):
        canvas.svg("")


def test_numbers_far_apart_stand_on_powers_of_ten() -> None:
    wide, near = scale([0.002, 900.0], 100, 0), scale([40.0, 50.0], 100, 0)
    assert wide.powers and wide.at(0.01) - wide.at(0.1) == pytest.approx(wide.at(1) - wide.at(10))
    assert not near.powers and near.at(0) == 100 and near.ticks()[0] == 0
    assert [written(number) for number in (1e-5, 0.01, 1e4, 0.25)] == ["10⁻⁵", "0.01", "10⁴", "0.25"]


def _page(tmp_path: Path, kind: str) -> str:
    """The page of the fixture's Gemma 4: its twin, which has pictures, or a checkpoint with the twin behind it."""
    raw = fixture.gemma4("tiny", "tiny", 8, 2, 4, False)
    quirk = {"slug": "sliding-window", "label": "Sliding window", "verdict": "yes", "blocks": [0, 2], "statement": "S."}
    pictures = [
        PICTURES["mask"].model_copy(update={"quirks": ["sliding-window"], "blocks": [0, 2]}),
        PICTURES["growth"],
    ]
    raw["pictures"] = [picture.model_dump() for picture in pictures]
    others = [one for one in raw["experiments"] if one["slug"] != "sliding-window"]
    built = fixture.gemma4("google/gemma-4-E2B-it", "config", 35, 5, 20, False)
    for one in (raw, built):
        one["experiments"] = [*others, quirk]
    stored = {
        "tiny": Stored(Path("tiny.json"), Record.model_validate(raw)),
        "config": Stored(Path("config.json"), Record.model_validate(built)),
    }
    composed = compose(Family("gemma4_text", stored), stored[kind], tmp_path, with_schema=True)
    return composed.html


def test_a_picture_stands_on_its_card_or_in_a_section_of_its_own(tmp_path: Path) -> None:
    html = _page(tmp_path, "tiny")
    [card] = re.findall(
        r'<details class="quirk" name="quirk" id="q-sliding-window">.*?</details>\s*</div>|$', html, re.S
    )[:1]
    assert 'class="picture of-mask"' in card and "“mask” &amp; &lt;more&gt;." in card and "blocks 0, 2" in card
    [section] = re.findall(r'<section class="pictures-section".*?</section>', html, re.S)
    assert section.count("<figure") == 1 and "of-growth" in section
    assert "2, 9000, 40" in section and "–, 4, 5" in section
    assert html.count('<svg class="drawn"') == 2


def test_a_checkpoint_that_was_only_built_shows_what_its_twins_wiring_decides(tmp_path: Path) -> None:
    html = _page(tmp_path, "config")
    assert html.count('<svg class="drawn"') == 1 and "of-mask" in html and "pictures-section" not in html
    assert "On its twin tiny: “mask”" in html and "of its twin tiny</small>" in html


def test_a_quirks_page_shows_a_few_families_that_look_different(tmp_path: Path) -> None:
    from probe.render import by_quirk

    families = []
    for place, rows in enumerate([WINDOW, WINDOW, TRIANGLE, *([["1" * n] * n][0] for n in range(2, 9))]):
        raw = fixture.llama()
        quirk = {"slug": "sliding-window", "label": "W", "verdict": "yes", "blocks": [0], "statement": "S."}
        mask = PICTURES["mask"].model_copy(update={"rows": rows, "quirks": ["sliding-window"], "blocks": [0]})
        full = mask.model_copy(update={"name": "full", "blocks": [1]})
        record = Record.model_validate(
            raw | {"experiments": [quirk], "pictures": [full.model_dump(), mask.model_dump()]}
        )
        families.append(Family(f"family{place}", {"tiny": Stored(Path("tiny.json"), record)}))
    page = by_quirk.page("sliding-window", "W", by_quirk.findings(families), len(families))
    [part] = page.parts
    assert len(part.drawings) == by_quirk.DRAWINGS
    urls = [re.findall(r'href="([^"]*)"', drawing) for drawing in part.drawings]
    assert "family1" not in json.dumps(urls) and "family2" in json.dumps(urls)
