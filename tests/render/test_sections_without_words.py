"""A page has no heading over nothing: sections of which a record has nothing to say are left out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from probe.render.catalog import Family, Stored
from probe.render.page import compose
from probe.render.standing import Standing
from probe.schema import Record
from probe.store import ROOT, read_record
from tests.render import fixture


def _page(tmp_path: Path, changed: dict[str, Any], note: str) -> tuple[str, list[str]]:
    """The page of the fixture's Llama with other words: its HTML, and the ids in its table of contents."""
    raw = fixture.llama()
    raw["about"] |= changed.pop("about", {})
    stored = Stored(Path("tiny.json"), Record.model_validate(raw | changed))
    tmp_path.mkdir()
    if note:
        (tmp_path / "llama.md").write_text(note)
    composed = compose(Family("llama", {"tiny": stored}), stored, tmp_path, with_schema=True)
    return composed.html, [entry["id"] for entry in composed.toc[0]["children"]]


WITHOUT: dict[str, dict[str, Any]] = {
    "module": {"about": {"module": "", "doc": "", "declared": []}},
    "printout": {"printout": ""},
    "notes": {},
}


@pytest.mark.parametrize("section", WITHOUT)
def test_a_section_without_words_is_left_out(tmp_path: Path, section: str) -> None:
    for empty in (False, True):
        note = "" if empty and section == "notes" else "A note."
        html, contents = _page(tmp_path / str(empty), dict(WITHOUT[section]) if empty else {}, note)
        there = not empty
        assert (section in contents) is there
        assert (f'<h2 id="{section}"' in html) is there
        assert bool(re.search(rf'<section class="{section}"', html)) is there


@pytest.mark.parametrize("name", ["llama/tiny", "gemma4_text/tiny-vision"])
def test_an_identity_speaks_of_images_only_beside_a_vision_encoder(name: str) -> None:
    record = read_record(ROOT / "site_src" / "records" / f"{name}.json")
    shown = [identity.expression for identity in Standing(record, None).identities(False)]
    assert len(shown) == len(record.identities)
    assert any("no image token" in expression for expression in shown) == (record.vision is not None)
