"""What differs between all records of two sources, as Markdown that names facts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from probe.diff.compare import WORDING, Change, compare, provenance
from probe.diff.sources import Key, Source
from probe.diff.words import code, counted, listed
from probe.errors import ProbeError

Record = dict[str, Any]

_LAST = ("Printout", "The module's own words", WORDING)
"""Sections that follow from others, or state no fact."""


@dataclass
class FamilyDifference:
    """What differs of a family that both sources have.

    Attributes:
        records: number of records that both have.
        changes: by checkpoint id; of checkpoints with any.
        added: checkpoints that only the second source has a record of.
        lost: those that only the first has.
    """

    title: str
    records: int
    changes: dict[str, list[Change]] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def any(self) -> bool:
        return bool(self.changes or self.added or self.lost)


@dataclass
class Difference:
    """What differs between two sources.

    Attributes:
        families: those with a change, by name.
        added: families that only the second source has: name -> (title, number of records).
        lost: those that only the first has.
        provenance: by the change, the records it is of, as ``family/file stem``.
        unchanged: number of families of which no fact differs.
    """

    families: dict[str, FamilyDifference] = field(default_factory=dict)
    added: dict[str, tuple[str, int]] = field(default_factory=dict)
    lost: dict[str, tuple[str, int]] = field(default_factory=dict)
    provenance: dict[str, list[str]] = field(default_factory=dict)
    unchanged: int = 0

    @property
    def any(self) -> bool:
        """Whether anything differs, provenance included."""
        return bool(self.families or self.added or self.lost or self.provenance)


def difference(before: Source, after: Source) -> Difference:
    """Compare two sources; of records with equal texts none is read. Raises ProbeError for one that is no record."""
    keys = sorted({*before.digests, *after.digests})
    touched = [key for key in keys if before.digests.get(key) != after.digests.get(key)]
    old = before.read(key for key in touched if key in before.digests)
    new = after.read(key for key in touched if key in after.digests)
    had, have = ({family for family, _ in source.digests} for source in (before, after))
    found = Difference()
    for name in sorted(had | have):
        mine = [key for key in touched if key[0] == name]
        if name not in had:
            found.added[name] = (_title(new[mine[0]]), len(mine))
        elif name not in have:
            found.lost[name] = (_title(old[mine[0]]), len(mine))
        elif mine and (family := _family(mine, old, new, found.provenance)).any:
            family.records = sum(key in before.digests and key in after.digests for key in keys if key[0] == name)
            found.families[name] = family
        else:
            found.unchanged += 1
    return found


def _family(
    keys: list[Key], old: dict[Key, Record], new: dict[Key, Record], moved: dict[str, list[str]]
) -> FamilyDifference:
    family = FamilyDifference(_title(next(new[key] if key in new else old[key] for key in keys)), 0)
    for key in keys:
        if key not in old:
            family.added.append(_id(new[key]))
        elif key not in new:
            family.lost.append(_id(old[key]))
        else:
            if changes := _compared(key, old[key], new[key]):
                family.changes[_id(new[key])] = changes
            for change in provenance(old[key], new[key]):
                moved.setdefault(change.told(), []).append("/".join(key))
    return family


def _compared(key: Key, before: Record, after: Record) -> list[Change]:
    try:
        return compare(before, after)
    except (LookupError, TypeError, AttributeError) as error:
        raise ProbeError(
            f"One of the two records {'/'.join(key)}.json does not say what a record says ({type(error).__name__}: "
            f"{error}); `python -m probe check {key[0]}` tells which, where it is one of this tree."
        ) from error


def _title(record: Record) -> str:
    return str(record["about"]["title"])


def _id(record: Record) -> str:
    return str(record["checkpoint"]["id"])


def markdown(found: Difference) -> str:
    """The whole report."""
    return "\n".join(_lines(found)) + "\n"


def headline(found: Difference) -> str:
    """One sentence: how many families changed, were added, were lost."""
    if not (found.families or found.added or found.lost):
        return f"No fact changed in {counted(found.unchanged, 'family')}."
    parts = [(len(found.families), "changed"), (len(found.added), "added"), (len(found.lost), "lost")]
    said = ", ".join(f"{counted(number, 'family')} {what}" for number, what in parts if number)
    return f"{said}; {found.unchanged} without a change of fact."


def _lines(found: Difference) -> Iterator[str]:
    yield headline(found)
    for title, families in (("Families added", found.added), ("Families lost", found.lost)):
        if families:
            yield from ("", f"## {title}", "")
            for name, (said, records) in families.items():
                yield f"- {said} ({code(name)}), {counted(records, 'record')}"
    for name, family in found.families.items():
        yield from ("", f"## {family.title} ({code(name)})")
        for ids, what in ((family.added, "has a record now"), (family.lost, "has no record any more")):
            if ids:
                yield ""
                yield from (f"- {code(checkpoint)} {what}" for checkpoint in ids)
        yield from _sections(family)
    if found.provenance:
        yield from (
            "",
            "## Provenance",
            "",
            "Where and with what the records were measured, which is no fact of a model.",
        )
        yield ""
        for told, where in found.provenance.items():
            yield f"- {told}, in {counted(len(where), 'record')}"


def sentences(family: FamilyDifference) -> dict[str, dict[str, str]]:
    """Section -> sentence -> whose checkpoints it is of; what several share is told once, with their names."""
    sections: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for checkpoint, changes in family.changes.items():
        for change in changes:
            whose = sections[change.section][change.told()]
            if checkpoint not in whose:
                whose.append(checkpoint)
    order = [*(name for name in sections if name not in _LAST), *(name for name in _LAST if name in sections)]
    return {
        section: {told: _whose(whose, family.records) for told, whose in sections[section].items()} for section in order
    }


def _sections(family: FamilyDifference) -> Iterator[str]:
    """A list a section."""
    for section, told in sentences(family).items():
        yield from ("", f"### {section}", "")
        for sentence, whose in told.items():
            yield f"- {sentence} ({whose})"


def _whose(checkpoints: list[str], records: int) -> str:
    if len(checkpoints) == records and records > 1:
        return f"all {records} checkpoints"
    return listed([code(checkpoint) for checkpoint in checkpoints])
