"""Pages of the committed records and of the fixture, and what each says a reader should know."""

from __future__ import annotations

import re
from typing import Any

import pytest

from probe.render.catalog import Family, Stored, read
from probe.render.know import what_to_know
from probe.render.standing import Standing
from probe.store import file_stem, records_dir
from tests.render import fixture

FAMILIES = read(records_dir())


def standing(family: Family, stored: Stored) -> Standing:
    record = stored.record
    behind = family.stored.get(file_stem(record.evidence.twin)) if record.evidence else None
    return Standing(record, behind.record if behind else None, family.uri(behind) if behind else None, "../")


COMMITTED = [(f.name, s.slug, standing(f, s)) for f in FAMILIES.values() for s in f.pages]
FIXTURE = [(r.family, file_stem(r.checkpoint.id), Standing(r, None)) for r in fixture.records()]
every_page = pytest.mark.parametrize(
    "page", [p for *_, p in [*COMMITTED, *FIXTURE]], ids=[f"{f}-{s}" for f, s, _ in [*COMMITTED, *FIXTURE]]
)


def committed(family: str, slug: str) -> Standing:
    return standing(FAMILIES[family], FAMILIES[family].stored[slug])


def plain(page: Standing, topic: str) -> str:
    """A topic's sentences as a reader sees them; empty where the page has no such topic."""
    found = next((t for t in what_to_know(page) if t.id == topic), None)
    text = re.sub(r"<[^>]+>", "", " ".join(found.sentences)) if found else ""
    return text.replace("&#39;", "'").replace("&gt;", ">").replace("&lt;", "<")


def changed(page: Standing, **update: Any) -> Standing:
    """The page of a record that says something else."""
    return Standing(page.record.model_copy(update=update), page.twin)
