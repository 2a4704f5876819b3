"""The pages of comparisons: one that takes any checkpoints, and a few made beforehand, which need no script."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from markupsafe import Markup

from probe.render.catalog import Family
from probe.render.compare.column import ROOT, Column, column, named, shortened
from probe.render.compare.table import DiagramRow, FactGroup, diagram, facts
from probe.render.diagram.pieces import ROWS
from probe.render.overviews import Link
from probe.render.templating import render

PAIRED = 4
"""Families that the pairs made beforehand are of."""


@dataclass(frozen=True)
class Pick:
    """A family's checkpoints: (page without its last slash, label) pairs."""

    family: str
    pages: list[tuple[str, str]]


@dataclass(frozen=True)
class Compared:
    """A head of a column. ``short``: what its cells are labelled with on a phone; ``shape``: label and blocks of the
    shape that is drawn."""

    title: str
    short: str
    checkpoint: str
    url: str
    shape: tuple[str, str]


@dataclass(frozen=True)
class CompareTable:
    heads: list[Compared]
    diagram: list[DiagramRow]
    roles: dict[str, str]
    groups: list[FactGroup]


@dataclass(frozen=True)
class ComparePage:
    """``picks``: what can be chosen, on the page that takes any; ``change``: on the others, that page's address."""

    title: str
    up: str
    picks: list[Pick]
    pairs: list[Link]
    table: Markup | None
    change: str | None


def pairs(families: Iterable[Family]) -> list[tuple[Family, Family]]:
    """Families of different kinds, each with each: of every kind the one with the most published checkpoints listed,
    the first by name where as many. Where there are fewer kinds, the next families whatever their kind."""
    most = sorted(families, key=lambda family: (-_published(family), family.name))
    first: dict[str, Family] = {}
    for family in most:
        first.setdefault(kind(family), family)
    chosen = [*first.values(), *(family for family in most if family is not first[kind(family)])][:PAIRED]
    return list(combinations(sorted(chosen, key=lambda family: family.name), 2))


def kind(family: Family) -> str:
    """What the blocks of a family's default checkpoint are made of, as far as whole families differ in it."""
    found = {sub.kind for shape in family.default.record.shapes for sub in shape.sublayers}
    if "mixer" in found:
        return "hybrid" if "attention" in found else "mixer"
    return "mixture" if "moe" in found else "dense"


def _published(family: Family) -> int:
    return len([entry for entry in family.listed if entry.kind != "tiny"])


def address(pair: Sequence[Family]) -> str:
    """Where a pair's page is, from the site's root."""
    return f"compare/{'--'.join(family.name for family in pair)}/"


def name(pair: Sequence[Family]) -> str:
    return " and ".join(family.default.record.about.title for family in pair)


def any_page(families: Sequence[Family]) -> Markup:
    """The page that compares what its address names."""
    picks = [
        Pick(f.default.record.about.title, [(f.uri(s).rstrip("/"), s.record.checkpoint.id) for s in f.in_order])
        for f in sorted(families, key=lambda f: f.default.record.about.title.lower())
    ]
    links = [Link(name(pair), f"../{address(pair)}") for pair in pairs(families)]
    return render(ComparePage("Compare", "../", picks, links, None, None))


def pair_page(pair: tuple[Family, Family]) -> Markup:
    """The page of two families, made beforehand."""
    up = "../../"
    made = table([column(family, family.default) for family in pair], up)
    change = f"{up}compare/?a={pair[0].name}&b={pair[1].name}"
    return render(ComparePage(name(pair), up, [], [], made, change))


def table(columns: Sequence[Column], up: str) -> Markup:
    """Columns as a table, each with the shape that most of its blocks have. ``up`` leads to the site's root."""
    shapes = [column.shape for column in columns]
    heads = [
        Compared(title, short, c.checkpoint, f"{ROOT}{c.page}/", (c.shapes[s].label, c.shapes[s].blocks))
        for title, short, c, s in zip(named(columns), shortened(columns), columns, shapes, strict=True)
    ]
    made = render(CompareTable(heads, diagram(columns, shapes), ROWS, facts(columns)))
    return Markup(made.replace(f'href="{ROOT}', Markup('href="' + up)))
