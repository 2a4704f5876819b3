"""What the templates of a page's answers are given: what to know, and the tables people ask for."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from probe.render.know import Topic


@dataclass(frozen=True)
class Know:
    """``standing``: the run behind the sentences."""

    topics: list[Topic]
    standing: str


@dataclass(frozen=True)
class Lookup:
    """A table. The first cell of a row is its head."""

    id: str
    title: str
    lead: Markup
    head: list[str]
    rows: list[list[Markup]]


@dataclass(frozen=True)
class Lookups:
    tables: list[Lookup]
    standing: str
