"""The command ``list``: a line a family of what has records and what has not; of named families, each checkpoint."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

from probe import registry, store
from probe.arguments import Parser

KINDS = {"tiny": "tiny twin", "config": "built from its config", "weights": "real weights"}
COLUMNS = {"tiny": "twins", "config": "builds", "weights": "real", "unprobed": "unprobed", "absent": "absent"}
MARKS = {"unprobed": "○", "absent": "–", "broken": "✗"}
TITLE_WIDTH = 34


@dataclass(frozen=True)
class Entry:
    """One checkpoint of a family.

    Attributes:
        kind: of its record; without one, of what can be probed here, or None where nothing can.
        record: whether it has a record that is whole.
        reason: why it cannot be probed here.
        fault: what is wrong with its record.
    """

    id: str
    kind: str | None
    record: bool = False
    reason: str | None = None
    fault: str | None = None

    @property
    def column(self) -> str:
        """What it is counted as."""
        if self.fault:
            return "broken"
        if self.record:
            return str(self.kind)
        return "unprobed" if self.kind else "absent"


def families(given: list[str]) -> int:
    """``python -m probe list``."""
    parser = Parser(prog="python -m probe list", description="The families, their checkpoints, and which have records.")
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="show each checkpoint of these families")
    parser.add_argument("--json", action="store_true", help="print JSON")
    found = parser.read(given)
    shown = [registry.get(name) for name in dict.fromkeys(found.families)] or registry.families()
    store.require_records()
    rows = [(family, entries(family)) for family in shown]
    if found.json:
        sys.stdout.write(store.canonical([_data(*row) for row in rows]))
    else:
        print(*(_details(rows) if found.families else _table(rows)), sep="\n")
    return 0


def entries(family: registry.Family) -> list[Entry]:
    """The twins, the listed checkpoints, what else can be probed here, and what else has a record."""
    checkpoints = import_module("probe.checkpoints")
    targets = {target.id: str(target.kind) for target in checkpoints.targets(family.name)}
    absent = dict(checkpoints.missing(family.name))
    have = {path.stem for path in store.record_files(family.name)}
    names = list(dict.fromkeys([*family.twins, *family.checkpoints, *targets]))
    names += sorted(have - set(map(store.file_stem, names)))
    return [
        _recorded(family.name, name, targets.get(name))
        if store.file_stem(name) in have
        else Entry(name, targets.get(name), reason=absent.get(name))
        for name in names
    ]


def _recorded(family: str, name: str, kind: str | None) -> Entry:
    path = store.record_path(family, name)
    if (fault := store.fault(path)) is not None:
        return Entry(name, kind, fault=fault)
    if kind != "tiny":  # a build's record may be of real weights, and what is no target may be of anything
        kind = store.read_json(path)["checkpoint"].get("kind", kind)
    return Entry(name, kind, record=True)


def _table(rows: Sequence[tuple[registry.Family, list[Entry]]]) -> list[str]:
    width = max((len(family.name) for family, _ in rows), default=0)
    lines = [f"{'family':<{width}}  {'title':<{TITLE_WIDTH}}  {'  '.join(COLUMNS.values())}"]
    total: Counter[str] = Counter()
    for family, listed in rows:
        counts = Counter(entry.column for entry in listed)
        total += counts
        numbers = "  ".join(f"{counts[key] or '·':>{len(head)}}" for key, head in COLUMNS.items())
        title = family.title if len(family.title) <= TITLE_WIDTH else f"{family.title[: TITLE_WIDTH - 1]}…"
        note = f"  {counts['broken']} broken" if counts["broken"] else ""
        lines.append(f"{family.name:<{width}}  {title:<{TITLE_WIDTH}}  {numbers}{note}")
    recorded = sum(total[kind] for kind in KINDS)
    return [
        *lines,
        f"{len(rows)} families: {recorded} records, {total['unprobed']} more checkpoints that can be probed here, "
        f"{total['absent']} that cannot.",
        "`python -m probe list FAMILY` shows a family's checkpoints.",
    ]


def _details(rows: Sequence[tuple[registry.Family, list[Entry]]]) -> list[str]:
    lines = []
    for family, listed in rows:
        lines.append(f"{family.name}  {family.title}")
        width = max(len(entry.id) for entry in listed)
        for entry in listed:
            said = entry.fault or entry.reason or KINDS.get(str(entry.kind), "")
            lines.append(f"  {MARKS.get(entry.column, '●')} {entry.id:<{width}}  {said}".rstrip())
    return [*lines, "● has a record   ○ can be probed here   – cannot   ✗ has a record that cannot be read, and why"]


def _data(family: registry.Family, listed: list[Entry]) -> dict[str, object]:
    keys = ("id", "kind", "record", "reason", "fault")
    shown = [{key: getattr(entry, key) for key in keys} for entry in listed]
    return {"family": family.name, "title": family.title, "checkpoints": shown}
