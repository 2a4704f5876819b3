"""What the templates of a page's answers are given: what to know, the tables people ask for, and recipes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from markupsafe import Markup

from probe.render.know import Topic
from probe.render.text import cell

_COLUMNS = 4
"""Columns that have room beside each other on a tablet, where the longest words of theirs have."""
_LETTERS = 88
"""Letters of code on a line of a tablet, 768 px wide, beside the space between four columns."""


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

    @property
    def room(self) -> str:
        """Of the columns: ``many`` have no room beside each other on a tablet, ``four`` on one held across."""
        wide = sum(max(map(_longest, column)) for column in zip(*self.rows, strict=True))
        if len(self.head) > _COLUMNS or wide > _LETTERS:
            return "many"
        return "four" if len(self.head) == _COLUMNS else ""


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


def _longest(html: Markup) -> int:
    """Letters of the longest word of a cell, in which long names may break."""
    return max(map(len, re.sub("<[^>]*>", "", cell(html).replace("<wbr>", " ")).split()), default=0)
