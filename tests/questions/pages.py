"""A family's page of one checkpoint, as questions are asked of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from probe.render.answers import Lookup
from probe.render.know.subject import Subject
from probe.render.lookups import lookups
from probe.render.places import is_served
from probe.render.standing import Standing
from probe.schema import Experiment, Record, Value
from tests.render.knowing import COMMITTED, FAMILIES


@dataclass
class Page:
    """A family's page of one checkpoint, as its answers are made from it."""

    family: str
    standing: Standing

    @property
    def record(self) -> Record:
        return self.standing.record

    @property
    def run(self) -> Record:
        """The record that measured."""
        return self.standing.run or self.record

    @cached_property
    def tables(self) -> dict[str, Lookup]:
        found = lookups(FAMILIES[self.family], self.standing)
        return {table.id: table for table in found.tables} if found else {}

    def value(self, name: str) -> Value | None:
        """The first row of a value that is served."""
        rows = [*self.record.values, *(self.record.vision.values if self.record.vision else [])]
        return next((row for row in rows if row.name == name and is_served(row)), None)

    def quirk(self, slug: str) -> Experiment | None:
        return next((e for e in self.record.experiments if e.slug == slug and e.verdict == "yes"), None)

    def run_quirk(self, slug: str) -> Experiment | None:
        """The quirk as the run behind the page measured it."""
        return next((e for e in self.run.experiments if e.slug == slug and e.verdict == "yes"), None)

    def verdict(self, slug: str) -> str | None:
        return next((e.verdict for e in self.record.experiments if e.slug == slug), None)

    @cached_property
    def subject(self) -> Subject:
        return Subject(self.standing)

    def facts(self) -> set[str]:
        return {fact.name for fact in self.run.facts}

    def sums(self, name: str) -> list[str]:
        return [i.expression for i in self.standing.identities(False) if i.name == name or i.name.startswith(name)]


PAGES = [Page(family, page) for family, _, page in COMMITTED]

Of = Callable[[Page], object]
"""What is asked of a page: which pages a question concerns, or whether one answers it."""
