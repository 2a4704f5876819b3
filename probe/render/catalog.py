"""The records on disk, as families and the checkpoints of their selectors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from probe.errors import ProbeError
from probe.schema import ListedCheckpoint, Record
from probe.store import read_record


@dataclass(frozen=True)
class Stored:
    """A record and its file, whose stem names its page."""

    path: Path
    record: Record

    @property
    def slug(self) -> str:
        return self.path.stem

    @property
    def raw_uri(self) -> str:
        """Where the site publishes the file."""
        return f"records/{self.record.family}/{self.path.name}"


@dataclass(frozen=True)
class Family:
    """A family with at least one record. ``stored`` is by slug."""

    name: str
    stored: dict[str, Stored]

    @cached_property
    def listed(self) -> list[ListedCheckpoint]:
        """The selector's entries: the longest list that a record carries, then records that no list names."""
        fullest = max((s.record.about.checkpoints for s in self.stored.values()), key=len)
        named = {entry.file for entry in fullest}
        extra = [
            ListedCheckpoint(id=s.record.checkpoint.id, kind=s.record.checkpoint.kind, file=slug, reason=None)
            for slug, s in sorted(self.stored.items())
            if slug not in named
        ]
        return [*fullest, *extra]

    @property
    def in_order(self) -> list[Stored]:
        """The records in the order of the selector."""
        return [self.stored[e.file] for e in self.listed if e.file in self.stored]

    @cached_property
    def default(self) -> Stored:
        """The page at ``/<family>/``: the first listed published checkpoint with a record, else the first record."""
        order = self.in_order
        published = [s for s in order if s.record.checkpoint.kind != "tiny"]
        return (published or order)[0]

    def uri(self, stored: Stored) -> str:
        """The page's directory below the site's root, with a slash at its end."""
        return f"{self.name}/" if stored is self.default else f"{self.name}/{stored.slug}/"

    @property
    def pages(self) -> list[Stored]:
        return [self.default, *(s for _, s in sorted(self.stored.items()) if s is not self.default)]


def read(directory: Path) -> dict[str, Family]:
    """Reads ``<directory>/<family>/<checkpoint>.json`` into families by name.

    Raises:
        ProbeError: the directory is missing, or a file in it is no record.
    """
    if not directory.is_dir():
        raise ProbeError(f"There are no records at {directory}; probe a family first, or name their directory.")
    found = (read_family(folder) for folder in sorted(directory.glob("[!.]*/")))
    return {family.name: family for family in found if family}


def read_family(folder: Path) -> Family | None:
    """A family from its folder of records, which has its name; None where there are none.

    Raises:
        ProbeError: a file in it is no record, or the record of another family.
    """
    stored = {path.stem: Stored(path, read_record(path)) for path in sorted(folder.glob("[!.]*.json"))}
    for each in stored.values():
        if each.record.family != folder.name:
            raise ProbeError(f"{each.path} is a record of {each.record.family}; move it to that family's folder.")
    return Family(folder.name, stored) if stored else None
