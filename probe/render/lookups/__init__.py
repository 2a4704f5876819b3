"""The tables people ask for: short answers made from a page's rows, identities and facts.

One function a table. Each gives None where the record does not hold what its table needs.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import compress

from probe.render.answers import Lookup, Lookups
from probe.render.catalog import Family
from probe.render.know.subject import Subject
from probe.render.lookups import images
from probe.render.lookups.attention import borrowing, projections
from probe.render.lookups.modules import outputs, paths, returned
from probe.render.lookups.norms import inner, norms
from probe.render.lookups.routing import routers, routing, scoring
from probe.render.lookups.stream import hidden_states, readout, terms_of_the_sum
from probe.render.lookups.tools import misleading, reach
from probe.render.standing import Standing


def lookups(family: Family, standing: Standing) -> Lookups | None:
    """Every table that the page's record can fill."""
    subject = Subject(standing)
    found: list[Lookup | None] = [
        hidden_states(subject),
        terms_of_the_sum(subject),
        returned(subject),
        outputs(subject),
        routing(subject),
        routers(subject),
        scoring(subject),
        borrowing(subject),
        projections(subject),
        norms(subject),
        inner(subject),
        readout(subject),
        paths(family, subject),
        misleading(subject),
        images.way(subject),
        images.attention(subject),
        reach(subject),
    ]
    tables = [_filled(table) for table in found if table]
    return Lookups(tables, standing.words()) if tables else None


def _filled(table: Lookup) -> Lookup:
    """A table without the columns in which no row says anything."""
    said = [any(column) for column in zip(*table.rows, strict=True)]
    return replace(table, head=[*compress(table.head, said)], rows=[[*compress(row, said)] for row in table.rows])
