"""A family page: its sections rendered in order, and its table of contents."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.render import context as c
from probe.render import sections
from probe.render.answers import Know
from probe.render.catalog import Family, Stored
from probe.render.figures import figure_of
from probe.render.know import what_to_know
from probe.render.lookups import lookups
from probe.render.printout import printout
from probe.render.second import likest
from probe.render.standing import Standing
from probe.render.templating import render
from probe.render.values import setup, tables
from probe.store import file_stem

HEADING = re.compile(r'<h([2-4])[^>]*? id="([^"]+)"[^>]*>(.*?)</h\1>', re.S)


@dataclass(frozen=True)
class Composed:
    """A page: its HTML, and toc tokens as mkdocs reads them."""

    html: str
    toc: list[dict[str, Any]]


def compose(family: Family, stored: Stored, notes: Path, with_schema: bool) -> Composed:
    """The page of one checkpoint. ``notes``: the directory of the families' Markdown."""
    record = stored.record
    up = "../" * family.uri(stored).count("/")
    behind = family.stored.get(file_stem(record.evidence.twin)) if record.evidence else None
    standing = Standing(
        record,
        behind.record if behind else None,
        family.uri(behind) if behind else None,
        up,
        likest(record, (each.record for each in family.stored.values())),
    )

    def link(target: str) -> str:
        return up + target

    contexts = [
        Know(what_to_know(standing), standing.words(), link("guide/")),
        sections.vision(standing, figure_of(standing, True)) if record.vision else None,
        c.Values([*tables(standing, False), *tables(standing, True)], setup(record)),
        lookups(family, standing),
        sections.identities(standing),
        sections.experiments(standing),
        sections.pictures(standing),
        sections.facts(standing, link),
        c.Printout(record.checkpoint.id, printout(record)) if record.printout else None,
        sections.config_cards(record),
        sections.notes(family, notes, record.vision is not None, link),
        sections.module(record),
        sections.provenance(standing, stored, link, with_schema),
    ]
    parts = [render(context) for context in contexts if context]
    rest = [render(sections.selector(family, stored, link)), figure_of(standing, False), *parts]
    article = str(render(c.Page(record.family, render(sections.hero(standing, link, family.uri(stored))), rest)))
    return Composed(article, toc(article, record.about.title))


def title(family: Family, stored: Stored) -> str:
    """The family's title, with the checkpoint's name on all pages but the family's own."""
    about = stored.record.about
    return about.title if stored is family.default else f"{about.title} · {stored.record.checkpoint.id}"


def brief(title: str) -> str:
    """What stands in a page's place while the search reads it, which is then to know its title only."""
    return f"<div><h1 data-search-exclude>{html.escape(title)}</h1></div>"


def toc(page: str, title: str) -> list[dict[str, Any]]:
    """The headings of levels 2 to 4 below the title, nested."""
    root: dict[str, Any] = {"level": 1, "id": "top", "name": title, "children": []}
    stack = [root]
    for match in HEADING.finditer(page):
        level = int(match[1])
        name = html.unescape(re.sub(r"<small>.*?</small>|<[^>]+>", "", match[3])).strip().removesuffix("¶").strip()
        token: dict[str, Any] = {
            "level": level,
            "id": match[2],
            "name": html.escape(" ".join(name.split())),
            "children": [],
        }
        while stack[-1]["level"] >= level:
            stack.pop()
        stack[-1]["children"].append(token)
        stack.append(token)
    return [root]
