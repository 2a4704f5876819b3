"""What the templates of a page's answers are given: what to know, the tables people ask for, and recipes."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from probe.render.know import Topic


@dataclass(frozen=True)
class Know:
    """``standing``: the run behind the sentences. ``guide``: the guide's address."""

    topics: list[Topic]
    standing: str
    guide: str


@dataclass(frozen=True)
class Lookup:
    """A table. The first cell of a row is its head. ``code`` follows it where the answer is to be run."""

    id: str
    title: str
    lead: Markup
    head: list[str]
    rows: list[list[Markup]]
    code: str | None = None


@dataclass(frozen=True)
class Lookups:
    tables: list[Lookup]
    standing: str


@dataclass(frozen=True)
class RecipeForm:
    """A snippet in one form. ``why`` where there is none to read with; ``edit`` only of a contribution."""

    form: str
    label: str
    read: str | None
    edit: str | None
    why: str | None


@dataclass(frozen=True)
class Recipe:
    """``setup``: the id of the lines that the snippets stand on; None for those lines."""

    forms: list[RecipeForm]
    setup: str | None
