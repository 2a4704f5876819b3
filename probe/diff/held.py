"""More kinds of rows: what modules hold and return, what the model returns when asked, and pictures' numbers."""

from __future__ import annotations

from typing import Any

from probe.diff.numbers import cells, same_cells
from probe.diff.rows import Kind, Row, same_change
from probe.diff.words import blocks_or_all, code, counted, shown


def _element(row: Row) -> str:
    position = row.get("position")
    return "it returns" if position is None else f"element {code(str(position))}"


def _returned_facts(row: Row) -> Row:
    facts: Row = {"in blocks": row.get("blocks"), "class": row.get("module")}
    facts |= {name: row.get(name) for name in ("type", "vision", "reads")}
    facts["written to afterwards"] = row.get("rewritten", False)
    for element in row.get("elements", []):
        for name in ("type", "shape", "value", "made"):
            facts[f"{_element(element)}, {name}"] = element.get(name)
    return facts


def _weight_facts(row: Row) -> Row:
    plain = {name: row.get(name) for name in ("yields", "shape", "axis", "layout")}
    counts = {f"number of {code(name)}": count for name, count in row.get("counts", {}).items()}
    parts = {f"part {code(name)}": where for name, where in row.get("parts", {}).items()}
    return {"in blocks": row.get("blocks"), **plain, **counts, **parts}


def _picture_facts(row: Row) -> Row:
    facts: Row = {name: row.get(name) for name in ("kind", "quirks", "axes", "ticks", "step", "marked")}
    lines = {f"series {code(series['name'])}": series["numbers"] for series in row.get("series") or []}
    return {"in blocks": row.get("blocks"), "cells": row.get("rows"), **facts, **lines}


CHANGE = "largest change of a logit under an edit"


def _station_facts(row: Row) -> Row:
    known = ("path", "side", "module", "blocks", "logits")
    rest = {name: value for name, value in row.items() if name not in known}
    return {"in blocks": row.get("blocks"), "class": row.get("module"), CHANGE: row.get("logits"), **rest}


def _cells(before: Row, after: Row) -> bool:
    return same_cells(before.get("rows") or [], after.get("rows") or [])


def _filled(rows: Any) -> str:
    """Many cells by what they come to."""
    added = sum(int(number) for row in rows or [] for number in cells(row) if number.isdecimal())
    return f"{counted(len(rows or []), 'row')} of cells, {added} in all"


def _numbers(value: Any) -> str:
    """Many numbers by what they come to."""
    numbers = [number for number in value or [] if number is not None]
    if not numbers:
        return "no number"
    return f"{counted(len(numbers), 'number')} from {min(numbers):g} to {max(numbers):g}, {sum(numbers):.6g} in all"


class _Written(dict[str, Any]):
    """How a picture's facts are written: its series by what their numbers come to."""

    def get(self, name: str, default: Any = None) -> Any:
        return _numbers if name.startswith("series ") else super().get(name, default)


WEIGHTS = Kind(
    "Weights",
    (lambda row: row["path"], lambda row: row["blocks"]),
    lambda row: code(row["path"]),
    lambda row: f"has the layout {shown(row.get('layout'))}",
    _weight_facts,
    lambda row: {"statement": row.get("statement")},
    written={"in blocks": blocks_or_all},
)
RETURNED = Kind(
    "What modules return",
    (lambda row: row["path"], lambda row: row["module"], lambda row: row["blocks"]),
    lambda row: code(row["path"]),
    lambda row: f"returns {shown(row.get('type'))}",
    _returned_facts,
    written={"in blocks": blocks_or_all},
)
OUTPUTS = Kind(
    "What the model returns",
    (lambda row: (row["flag"], row.get("field")), lambda row: row.get("load")),
    lambda row: ", ".join(code(row[name]) for name in ("flag", "field") if row.get(name)),
    lambda row: str(row.get("statement")),
    lambda row: {name: value for name, value in row.items() if name not in ("flag", "field", "statement")},
    lambda row: {"statement": row.get("statement")},
)
STATIONS = Kind(
    "An image's way",
    (lambda row: (row["path"], row["side"]),),
    lambda row: f"{code(row['path'])} {'input' if row['side'] == 'in' else 'output'}",
    lambda row: f"of shape {shown(row.get('shape'))}",
    _station_facts,
    rules={CHANGE: lambda before, after: same_change(before["logits"], after["logits"])},
    written={"in blocks": blocks_or_all},
)
PATTERNS = Kind(
    "An image's way",
    (lambda row: row["shape"],),
    lambda row: f"the patterns of shape {shown(row['shape'])}",
    lambda row: f"in blocks {shown(row['blocks'])}",
    lambda row: {name: value for name, value in row.items() if name != "shape"},
)
PICTURES = Kind(
    "Pictures",
    (lambda row: row["name"],),
    lambda row: f"the picture “{row['label']}”",
    lambda row: f"of {row['kind']}",
    _picture_facts,
    lambda row: {name: row.get(name) for name in ("label", "statement")},
    {"cells": _cells},
    _Written({"in blocks": blocks_or_all, "cells": _filled}),
)
