"""The kinds of rows a record has: what tells two rows of a kind apart, and which differences of one are facts.

A row's fields fall in three: facts, compared as `numbers.same` does unless a rule here says otherwise; words, which
describe a fact (a description, a statement) and count as changed where no fact of the row is; and parts of the key.
A key that is in none of these tables is a fact, so what a later schema adds is never passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from probe.diff.numbers import NOISE, neighbours, same
from probe.diff.words import blocks_or_all, code, shown
from probe.numerals import unit

Row = dict[str, Any]

EXACT = 1e-2
"""An edit of a contribution is exact where `layer_output` moved by it within this."""

_KERNELS = "eager_sdpa"
_UNDEFINED = "eager_sdpa_padding"
_PADDED = "left_padding"
_POSITIONS = "measured `with_positions`"


@dataclass(frozen=True)
class Kind:
    """A kind of rows.

    Attributes:
        section: heading that its changes stand under.
        key: the fields that tell rows apart; of rows that share the first, those with equal others are paired first.
        name: of a row, as a sentence's subject.
        brief: what is said of a row that appeared or vanished.
        facts: of a row, what is compared: what it is called -> its value.
        words: of a row, its wording, likewise.
        rules: for facts that `numbers.same` is not the rule for, when two rows' are the same.
        written: how facts are written where `words.shown` is not the way.
    """

    section: str
    key: tuple[Callable[[Row], Any], ...]
    name: Callable[[Row], str]
    brief: Callable[[Row], str]
    facts: Callable[[Row], dict[str, Any]]
    words: Callable[[Row], dict[str, Any]] = lambda row: {}
    rules: Mapping[str, Callable[[Row, Row], bool]] = field(default_factory=dict)
    written: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)


def _of(*names: str) -> Callable[[Row], Row]:
    return lambda row: {name: row[name] for name in names if name in row}


def _but(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}


def _measured(row: Row) -> Row:
    """What an experiment or a fact measured, a fact of the row each."""
    return {f"measured {code(name)}": number for name, number in row.get("measured", {}).items()}


def _value_facts(row: Row) -> Row:
    edit = row.get("edit") or {}
    place = row.get("hf")
    facts = {
        "is read at": row.get("location"),
        "native place": place and _place(place),
        "held by a hook as": place and place.get("held"),
        "in blocks": row.get("blocks"),
        "class": row.get("module"),
        "can be read": row.get("reads"),
        "can be edited": row.get("edits"),
        "largest change of a logit under an edit": edit.get("logits"),
        "exactness of an edit": edit.get("exact"),
        "edited in blocks": edit.get("blocks"),
        "needs the load": row.get("needs"),
    }
    known = ("host", "name", "location", "hf", "blocks", "module", "reads", "edits", "edit", "needs")
    return {**facts, **_but(row, *known, "description", "read_at", "reason", "why")}


def _place(place: Row) -> str:
    side = {"in": "input", "out": "output", "op": "operation"}.get(str(place.get("side")), str(place.get("side")))
    element = place.get("element")
    return f"{place.get('path') or 'the model'} {side}{'' if element is None else f' {element}'}"


def _exact(before: Row, after: Row) -> bool:
    one, other = ((row.get("edit") or {}).get("exact") for row in (before, after))
    if one is None or other is None:
        return one is other
    return bool(max(one, other) <= EXACT or neighbours(one, other))


def _logits(before: Row, after: Row) -> bool:
    one, other = ((row.get("edit") or {}).get("logits") for row in (before, after))
    return same_change(one, other)


def same_change(one: float | None, other: float | None) -> bool:
    """Whether two largest changes of a logit, of one significant digit, are the same fact."""
    if one is None or other is None:
        return one is other
    return bool(max(one, other) <= NOISE or neighbours(one, other))


def _identity_facts(row: Row) -> Row:
    facts = {"in blocks": row.get("blocks"), "holds": row.get("holds"), "error": row.get("max_abs_error")}
    return {**facts, **_but(row, "name", "blocks", "holds", "max_abs_error", "reason")}


def same_error(before: Row, after: Row) -> bool:
    """Whether two identities' errors say the same: both within the tolerance, and neither near it and not the other.

    An error near its tolerance, above a third of it, is told from one less than a tenth as large. Two errors beyond
    the tolerance are compared as numbers.
    """
    (one, within), (other, too) = ((row["max_abs_error"], _within(row)) for row in (before, after))
    if within != too:
        return False
    if not within:
        return neighbours(one, other)
    least, most = sorted((one, other))
    return bool(most <= after["tolerance"] / 3 or most < 10 * least)


def _within(row: Row) -> bool:
    return bool(row["max_abs_error"] <= row["tolerance"])


def _fact_value(before: Row, after: Row) -> bool:
    """A difference between two kernels is of rounding: its size is all it says; at padding, it says nothing.

    Yes and no were once told as 1 and 0.
    """
    name, one, other = after["name"], before["value"], after["value"]
    if one == other and isinstance(one, bool) != isinstance(other, bool):
        return True
    if name == _UNDEFINED:
        return True
    if name.startswith(_KERNELS):
        least, most = sorted((abs(one), abs(other)))
        return bool(most <= EXACT or most <= 10 * least)
    if name.startswith("unkept_"):
        return neighbours(one, other)
    if name == _PADDED:
        return same(one, other) or neighbours(one, other)
    return same(one, other)


def _with_positions(before: Row, after: Row) -> bool:
    """What padding moves with positions passed, of one significant digit too."""
    one, other = ((row.get("measured") or {}).get("with_positions") for row in (before, after))
    return same(one, other) or (one is not None and other is not None and neighbours(one, other))


def _of_kernels(row: Row) -> bool:
    name = str(row.get("name"))
    return name.startswith(_KERNELS) or name == _PADDED


def _brief_value(row: Row) -> str:
    return f"is read at {shown(row.get('location'))}" if row.get("location") else "has no place it is read at"


def _brief_fact(row: Row) -> str:
    value = row["value"]
    return shown(value) if isinstance(value, bool) else f"{value:g} {unit(value, row.get('unit'))}".rstrip()


def _brief_identity(row: Row) -> str:
    verdict = "holds" if row["holds"] else "does not hold"
    return f"{verdict}: {code(row['expression'])}, error {row['max_abs_error']:g} of {row['tolerance']:g} allowed"


VALUES = Kind(
    "Values",
    (lambda row: (row["host"], row["name"]), lambda row: row["module"], lambda row: row["blocks"]),
    lambda row: code(f"{row['host']}.{row['name']}"),
    _brief_value,
    _value_facts,
    _of("description", "read_at", "reason", "why"),
    {"exactness of an edit": _exact, "largest change of a logit under an edit": _logits},
    {"in blocks": blocks_or_all, "edited in blocks": blocks_or_all},
)
IDENTITIES = Kind(
    "Identities",
    (lambda row: row["name"], lambda row: row["expression"], lambda row: row["blocks"]),
    lambda row: f"“{row['name']}”",
    _brief_identity,
    _identity_facts,
    _of("reason"),
    {"error": same_error, "tolerance": lambda before, after: neighbours(before["tolerance"], after["tolerance"])},
    {"in blocks": blocks_or_all},
)
QUIRKS = Kind(
    "Quirks",
    (lambda row: row["slug"],),
    lambda row: row["label"],
    lambda row: f"verdict {row['verdict']}",
    lambda row: {
        "verdict": row["verdict"],
        "in blocks": row.get("blocks"),
        **_measured(row),
        **_but(row, "slug", "label", "verdict", "blocks", "measured", "statement"),
    },
    _of("label", "statement"),
    written={"verdict": str, "in blocks": blocks_or_all},
)
FACTS = Kind(
    "Facts",
    (lambda row: row["name"],),
    lambda row: row["label"],
    _brief_fact,
    lambda row: {**_but(row, "name", "label", "statement", "measured"), **_measured(row)},
    lambda row: {} if _of_kernels(row) else _of("label", "statement")(row),
    {"value": _fact_value, _POSITIONS: _with_positions},
)
CONFIG = Kind(
    "Sizes and config",
    (lambda row: row["name"],),
    lambda row: code(row["name"]),
    lambda row: shown(row["value"]),
    lambda row: _but(row, "name"),
    rules={"value": lambda before, after: bool(before["value"] == after["value"])},
)
CHECKPOINTS = Kind(
    "Checkpoints",
    (lambda row: row["id"],),
    lambda row: code(row["id"]),
    lambda row: f"is listed as {row['kind']}",
    lambda row: _but(row, "id", "reason"),
    _of("reason"),
)
DECLARED = Kind(
    "The module's own words",
    (lambda row: row["name"],),
    lambda row: code(row["name"]),
    lambda row: shown(row["value"]),
    lambda row: _but(row, "name"),
)
NODES = Kind(
    "Vision encoder",
    (lambda row: row["label"],),
    lambda row: f"station “{row['label']}”",
    lambda row: shown(row.get("note")),
    lambda row: _but(row, "label", "note"),
    _of("note"),
)


def _shape_facts(row: Row) -> Row:
    facts = _but(row, "label", "sublayers", "factors", "sizes")
    facts |= {f"size {code(name)}": size for name, size in row.get("sizes", {}).items()}
    for place, layer in enumerate(row.get("sublayers", []), 1):
        facts |= {f"sublayer {place}, {name}": value for name, value in layer.items()}
    for place, factor in enumerate(row.get("factors", []), 1):
        facts |= {f"factor {place}, {name}": value for name, value in factor.items()}
    return facts


SHAPES = Kind(
    "Blocks",
    (lambda row: row["label"], lambda row: row["identity"]),
    lambda row: f"shape “{row['label']}”",
    lambda row: f"of class {code(row['module'])}, {code(row['identity'])}",
    _shape_facts,
)
