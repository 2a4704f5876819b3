"""Columns joined: rows aligned, with what differs and what some lack. ``compare.js`` does the same in a browser."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from probe.render.compare.column import Column, Drawn, Row

NONE = "—"
VALUE = re.compile(r'<a class="(part [^"]*)"([^>]*href="[^"]*#v-[^"]*" aria-label="([^",]*))')


@dataclass(frozen=True)
class Cell:
    """A piece of a diagram in the table, in ``column``. ``span``: the rows it stands in; ``svg`` is None where the
    stream passes."""

    column: int
    span: int
    svg: str | None


@dataclass(frozen=True)
class DiagramRow:
    """``role``: key of `pieces.ROWS`. A column whose piece began further up has no cell."""

    role: str
    cells: list[Cell]


@dataclass(frozen=True)
class FactRow:
    """``differs``: whether the cells are not all the same; ``lacks``: whether some have it and others do not."""

    key: str
    cells: list[tuple[str, bool]]
    differs: bool
    lacks: bool


@dataclass(frozen=True)
class FactGroup:
    name: str
    rows: list[FactRow]
    differing: int


def diagram(columns: Sequence[Column], shapes: Sequence[int]) -> list[DiagramRow]:
    """The diagrams of one shape a column, aligned by role; values that some of the others lack are marked."""
    drawn = [column.shapes[shape].pieces for column, shape in zip(columns, shapes, strict=True)]
    rows: list[tuple[str, dict[int, Drawn]]] = []
    for index, pieces in enumerate(drawn):
        at = 0
        for piece in pieces:
            for role in piece.rows:
                place = next((k for k in range(at, len(rows)) if rows[k][0] == role), at)
                if place == len(rows) or rows[place][0] != role:
                    rows.insert(place, (role, {}))
                rows[place][1][index] = piece
                at = place + 1
    shared = set.intersection(*({name for piece in pieces for name in _values(piece.svg)} for pieces in drawn))
    made = []
    covered = [0] * len(columns)
    for at, (role, found) in enumerate(rows):
        cells = []
        for index in range(len(columns)):
            if covered[index] > at:
                continue
            here = found.get(index)
            last = max(k for k, (_, other) in enumerate(rows) if other.get(index) is here)
            covered[index] = 1 + (last if here else at)
            cells.append(Cell(index, covered[index] - at, _marked(here.svg, shared) if here else None))
        made.append(DiagramRow(role, cells))
    return made


def _values(svg: str) -> list[str]:
    return [match[3] for match in VALUE.finditer(svg)]


def _marked(svg: str, shared: set[str]) -> str:
    return VALUE.sub(lambda m: m[0] if m[3] in shared else f'<a class="{m[1]} is-lacked"{m[2]}', svg)


def facts(columns: Sequence[Column]) -> list[FactGroup]:
    """The facts and values of all columns, rows in the order in which columns bring them."""
    groups: dict[str, dict[str, dict[int, Row]]] = {}
    for index, column in enumerate(columns):
        for group in column.groups:
            rows = groups.setdefault(group.name, {})
            for row in group.rows:
                rows.setdefault(row.key, {})[index] = row
    return [_group(name, rows, len(columns)) for name, rows in groups.items() if rows]


def _group(name: str, rows: dict[str, dict[int, Row]], columns: int) -> FactGroup:
    made = []
    for key, found in rows.items():
        cells = [(found[k].html, found[k].has) if k in found else (NONE, False) for k in range(columns)]
        has = {have for _, have in cells}
        if has == {False} and name in ("Quirks", "Values"):
            continue
        same = {re.sub(r' href="[^"]*"', "", html) for html, _ in cells}
        made.append(FactRow(key, cells, len(same) > 1, len(has) > 1))
    return FactGroup(name, made, sum(row.differs for row in made))
