"""Two records compared field by field.

What differs is told as `Change`s, in the order of a page: sizes, blocks, values, identities, quirks, and so on. A row
whose facts are the same but not its wording gives one change under "Wording". Provenance is not compared here.
"""

from __future__ import annotations

import itertools
import marshal
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from probe.diff import held, rows
from probe.diff.numbers import same, same_words
from probe.diff.rows import Kind, Row
from probe.diff.words import code, quoted, shown, spans

WORDING = "Wording"
_KINDS = {
    "shapes": rows.SHAPES,
    "values": rows.VALUES,
    "identities": rows.IDENTITIES,
    "experiments": rows.QUIRKS,
    "pictures": held.PICTURES,
    "weights": held.WEIGHTS,
    "returned": held.RETURNED,
    "outputs": held.OUTPUTS,
}
_TOWER_ROWS = {*_KINDS, "path", "blocks"}
_ELSEWHERE = {
    *_KINDS,
    "about",
    "blocks",
    "config",
    "facts",
    "images",
    "layer_types",
    "printout",
    "provenance",
    "vision",
}
_MOST_LINES = 8


@dataclass(frozen=True)
class Change:
    """One fact that differs.

    Attributes:
        section: the heading it stands under.
        subject: whose fact it is, Markdown.
        what: the fact; empty for the subject as a whole.
        before: what one record says, Markdown; None where it has no such row.
        after: what the other says.
    """

    section: str
    subject: str
    what: str
    before: str | None
    after: str | None

    def told(self) -> str:
        """The change as a sentence: what it was, what it is."""
        if self.before is None:
            return f"{self.subject} appeared: {self.after}"
        if self.after is None:
            return f"{self.subject} vanished: it said {self.before}"
        if self.what == "is read at":
            return f"{self.subject} moved: {self.before} → {self.after}"
        what = f" {self.what}" if self.what not in ("", "value") else ""
        return f"{self.subject}{what}: {self.before} → {self.after}"

    def readings(self, was: str, now: str) -> str:
        """The change as two readings, ``was`` and ``now`` saying whose each one is."""
        subject = f"{self.subject}{f', {self.what}' if self.what else ''}"
        one, other = (text or "no such row" for text in (self.before, self.after))
        return f"{subject}: {was} {one}, {now} {other}"


def compare(before: Row, after: Row) -> list[Change]:
    """What differs between two records of one checkpoint, provenance apart.

    Args:
        before: JSON data of a record.
        after: JSON data of another.
    """
    return [*_changes(before, after)]


def provenance(before: Row, after: Row) -> list[Change]:
    """What differs in where the two records were measured."""
    return list(_plain("Provenance", "", before.get("provenance") or {}, after.get("provenance") or {}))


def _changes(before: Row, after: Row) -> Iterator[Change]:
    plain = (_without(record, _ELSEWHERE) for record in (before, after))
    yield from _plain(rows.CONFIG.section, "", *plain)
    for key, owner in (("config", ""), ("vision_config", "vision ")):
        yield from _rows(rows.CONFIG, before.get(key), after.get(key), owner)
    yield from _blocks(before, after, "")
    yield from _parts(before, after, "")
    yield from _rows(rows.FACTS, before.get("facts"), after.get("facts"))
    yield from _tower(before.get("vision"), after.get("vision"))
    yield from _images(before.get("images"), after.get("images"))
    one, other = before.get("about") or {}, after.get("about") or {}
    yield from _rows(rows.CHECKPOINTS, one.get("checkpoints"), other.get("checkpoints"))
    yield from _rows(rows.DECLARED, one.get("declared"), other.get("declared"))
    yield from _about(one, other)
    yield from _printout(before.get("printout") or "", after.get("printout") or "")


def _parts(before: Row, after: Row, owner: str) -> Iterator[Change]:
    for key, kind in _KINDS.items():
        yield from _rows(kind, before.get(key), after.get(key), owner)


def _tower(before: Row | None, after: Row | None) -> Iterator[Change]:
    if before is None or after is None:
        if (before is None) != (after is None):
            titles = [None if tower is None else str(tower["title"]) for tower in (before, after)]
            yield Change(rows.NODES.section, "The vision encoder", "", *titles)
        return
    plain = (_without(tower, _TOWER_ROWS) for tower in (before, after))
    yield from _plain(rows.NODES.section, "", *plain)
    yield from _rows(rows.NODES, before.get("path"), after.get("path"))
    yield from _blocks(before, after, "vision ")
    yield from _parts(before, after, "vision ")


def _images(before: Row | None, after: Row | None) -> Iterator[Change]:
    section = held.STATIONS.section
    if before is None or after is None:
        if (before is None) != (after is None):
            counts = [None if way is None else f"{len(way['stations'])} rows" for way in (before, after)]
            yield Change(section, "The way of an image", "", *counts)
        return
    plain = (_without(way, {"stations", "patterns"}) for way in (before, after))
    yield from _plain(section, "", *plain)
    yield from _rows(held.STATIONS, before.get("stations"), after.get("stations"))
    yield from _rows(held.PATTERNS, before.get("patterns"), after.get("patterns"))


def _blocks(before: Row, after: Row, owner: str) -> Iterator[Change]:
    """Blocks of another shape or layer type; their number, where it differs, is a size."""
    both: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for what, each in (("shape", _labels), ("layer type", lambda record: record.get("layer_types") or [])):
        for block, (one, other) in enumerate(zip(each(before), each(after), strict=False)):
            if one != other:
                both[what, one, other].append(block)
    for (what, one, other), blocks in both.items():
        yield Change("Blocks", f"{owner}{spans(blocks)}", what, shown(one), shown(other))
    for key, what in (("blocks", "number of blocks"), ("layer_types", "number of layer types")):
        one, other = (len(record.get(key) or []) for record in (before, after))
        if one != other:
            yield Change("Blocks", f"{owner}{what}", "", shown(one), shown(other))


def _labels(record: Row) -> list[str]:
    return [str(record["shapes"][shape]["label"]) for shape in record.get("blocks") or []]


def _plain(section: str, owner: str, before: Any, after: Any) -> Iterator[Change]:
    """Entries that are no rows, told by their path."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        if not same(before, after):
            yield Change(section, code(owner), "", shown(before), shown(after))
        return
    for key in sorted({*before, *after}):
        yield from _plain(section, f"{owner}.{key}".lstrip("."), before.get(key), after.get(key))


def _rows(kind: Kind, before: Sequence[Row] | None, after: Sequence[Row] | None, owner: str = "") -> Iterator[Change]:
    if _alike(before, after):
        return
    for one, other in paired(kind, before or [], after or []):
        if _alike(one, other):
            continue
        subject = f"{owner}{kind.name(other or one or {})}"
        if one is None or other is None:
            said = [None if row is None else kind.brief(row) for row in (one, other)]
            yield Change(kind.section, subject, "", *said)
        else:
            yield from _row(kind, subject, one, other)


def _alike(before: Any, after: Any) -> bool:
    """Whether two JSON values are equal in type too, as most are, so that none of their facts is looked at."""
    return bool(before == after) and marshal.dumps(before, 2) == marshal.dumps(after, 2)


def _row(kind: Kind, subject: str, before: Row, after: Row) -> Iterator[Change]:
    one, other = kind.facts(before), kind.facts(after)
    found = False
    for what in dict.fromkeys([*one, *other]):
        rule = kind.rules.get(what)
        if rule(before, after) if rule else same(one.get(what), other.get(what)):
            continue
        found = True
        write: Callable[[Any], str] = kind.written.get(what, shown)
        yield Change(kind.section, subject, what, write(one.get(what)), write(other.get(what)))
    if found:
        return
    one, other = kind.words(before), kind.words(after)
    for what in dict.fromkeys([*one, *other]):
        if not same_words(one.get(what), other.get(what)):
            yield Change(WORDING, subject, what, quoted(one.get(what)), quoted(other.get(what)))


def paired(kind: Kind, before: Sequence[Row], after: Sequence[Row]) -> list[tuple[Row | None, Row | None]]:
    """Rows of one record with the other's, in the other's order, what vanished last.

    Rows whose whole key is equal are paired first, then those that share ever less of it, in order.
    """
    partner: dict[int, int] = {}
    free = set(range(len(before)))
    for length in range(len(kind.key), 0, -1):
        waiting: dict[str, list[int]] = defaultdict(list)
        for place in sorted(free):
            waiting[_key(kind, before[place], length)].append(place)
        for place, row in enumerate(after):
            if place not in partner and (candidates := waiting.get(_key(kind, row, length))):
                partner[place] = candidates.pop(0)
                free.discard(partner[place])
    together: list[tuple[Row | None, Row | None]] = [
        (before[partner[place]] if place in partner else None, row) for place, row in enumerate(after)
    ]
    return together + [(before[place], None) for place in sorted(free)]


def _key(kind: Kind, row: Row, length: int) -> str:
    return repr([part(row) for part in itertools.islice(kind.key, length)])


def _about(before: Row, after: Row) -> Iterator[Change]:
    for name in ("title", "subtitle", "module"):
        if not same_words(before.get(name), after.get(name)):
            yield Change(WORDING, f"the family's {name}", "", quoted(before.get(name)), quoted(after.get(name)))
    one, other = ((about.get("doc") or "").splitlines() for about in (before, after))
    yield from _lines("the module's docstring", WORDING, one, other)


def _printout(before: str, after: str) -> Iterator[Change]:
    yield from _lines("what `print(model)` shows", "Printout", before.splitlines(), after.splitlines())


def _lines(subject: str, section: str, before: list[str], after: list[str]) -> Iterator[Change]:
    """Lines of one text that the other lacks, as one change."""
    if before == after:
        return
    gone, new = ([line.strip() for line in one if line not in set(other)] for one, other in _both_ways(before, after))
    yield Change(section, subject, "", _few(gone), _few(new))


def _both_ways(one: list[str], other: list[str]) -> Iterator[tuple[list[str], list[str]]]:
    yield one, other
    yield other, one


def _few(lines: list[str]) -> str:
    if not lines:
        return "the same lines, fewer or in another order"
    more = f" and {len(lines) - _MOST_LINES} more lines" if len(lines) > _MOST_LINES else ""
    return " / ".join(map(code, lines[:_MOST_LINES])) + more


def _without(record: Row, keys: set[str]) -> Row:
    return {key: value for key, value in record.items() if key not in keys}
