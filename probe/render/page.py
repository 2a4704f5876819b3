"""A family page: its sections rendered in order, and its table of contents."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from probe.render import context as c
from probe.render import sections
from probe.render.catalog import Family, Stored
from probe.render.figures import figure_of
from probe.render.printout import printout
from probe.render.standing import Standing
from probe.render.templating import render
from probe.render.values import tables
from probe.store import file_stem

HEADING = re.compile(r'<h([2-4])[^>]*? id="([^"]+)"[^>]*>(.*?)</h\1>', re.S)


@dataclass(frozen=True)
class Composed:
    """A page's HTML, title, description for search engines, and toc tokens as mkdocs reads them."""

    html: str
    title: str
    description: str
    toc: list[dict[str, Any]]


def compose(family: Family, stored: Stored, notes: Path, with_schema: bool) -> Composed:
    """The page of one checkpoint. ``notes``: the directory of the families' Markdown."""
    record = stored.record
    uri = family.uri(stored)
    up = "../" * uri.count("/")
    behind = family.stored.get(file_stem(record.evidence.twin)) if record.evidence else None
    standing = Standing(record, behind.record if behind else None)

    def link(target: str) -> str:
        return up + target

    is_default = stored is family.default
    parts: list[Any] = [sections.selector(family, stored, link)]
    rest = [render(p) for p in parts] + [figure_of(standing, False)]
    if record.vision:
        found = sections.vision(standing, figure_of(standing, True))
        rest.append(render(found))
    rest.append(render(c.Values([*tables(standing, False).hosts, *tables(standing, True).hosts])))
    for section in (sections.identities(standing), sections.experiments(record), sections.facts(record)):
        rest.append(render(section))
    rest.append(render(c.Printout(record.checkpoint.id, printout(record))))
    rest.append(render(sections.config_cards(record)))
    rest.append(render(sections.notes(record.family, notes, record.vision is not None)))
    rest.append(render(sections.module(record)))
    rest.append(render(sections.provenance(standing, stored, link, with_schema)))
    page = str(render(c.Page(record.family, render(sections.hero(standing)), rest, is_default)))
    if not is_default:
        page = re.sub(r"<(h[1-6])\b", r"<\1 data-search-exclude", page)
    title = record.about.title if is_default else f"{record.about.title} · {record.checkpoint.id}"
    return Composed(page, title, record.about.subtitle, toc(page, record.about.title))


def toc(page: str, title: str) -> list[dict[str, Any]]:
    """The headings of levels 2 to 4 below the title, nested."""
    root: dict[str, Any] = {"level": 1, "id": "top", "name": title, "children": []}
    stack = [root]
    for match in HEADING.finditer(page):
        level = int(match[1])
        name = html.unescape(re.sub(r"<[^>]+>", "", match[3])).strip().removesuffix("¶").strip()
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


def family_card(family: Family) -> c.FamilyCard:
    """The family's card on the index."""
    record = family.default.record
    names = [e.label for e in record.experiments if e.verdict == "yes"]
    tones = {t: str(k) for k, t in enumerate(dict.fromkeys(record.layer_types))}
    ticks = [c.Tick(i, tones[record.layer_types[i]], s, "") for i, s in enumerate(record.blocks)]
    figures = [
        ("blocks", str(len(record.blocks))),
        ("shapes", str(len(record.shapes))),
        ("values", str(len([v for v in record.values if v.blocks != []]))),
        ("checkpoints", str(len(family.stored))),
    ]
    return c.FamilyCard(
        record.family,
        record.about.title,
        record.about.subtitle,
        f"{family.name}/",
        names[:5],
        max(0, len(names) - 5),
        ticks,
        figures,
    )


def index_cards(families: dict[str, Family]) -> Markup:
    return render(c.Index([family_card(f) for f in families.values()]))
