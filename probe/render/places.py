"""Where every value is, over all families: what the pages of values, the index and the search are made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from probe.render.catalog import Family, Stored
from probe.render.text import row_id, some_blocks
from probe.schema import HfPath, Record, Value

Spot = tuple[str, str, int | str | None]
"""Native path, side, element."""


@dataclass
class Place:
    """One value on one host of one family.

    Attributes:
        stored: the family's first page that serves the value; its first page where none does.
        value: the row of that page's record.
        blocks: the number of blocks that the row's ``blocks`` are of.
        spots: the native places, with the number of checkpoints that have it there.
        run: a row that a run read, of the same host.
        serving: how many of the family's records serve it.
    """

    family: Family
    stored: Stored
    value: Value
    blocks: int
    spots: Counter[Spot] = field(default_factory=Counter)
    run: Value | None = None
    serving: int = 0

    @property
    def attn(self) -> str:
        """The attention implementation of a default load."""
        return self.stored.record.checkpoint.attn

    @property
    def served(self) -> bool:
        return is_served(self.value)

    @property
    def vision(self) -> bool:
        return self.value.host.startswith("model.vision")

    @property
    def url(self) -> str:
        """The value's row, from the site's root."""
        record = self.stored.record
        part = record.vision if self.vision and record.vision else record
        return f"{self.family.uri(self.stored)}#{row_id(self.value, part.values)}"

    @property
    def where(self) -> str:
        return some_blocks(self.value.blocks, self.blocks)

    @property
    def held(self) -> HfPath | None:
        """The native place whose tensor is not the value as it is, where a run showed that."""
        return next((v.hf for v in (self.value, self.run) if v and v.hf and v.hf.held), None)


def is_served(value: Value) -> bool:
    return value.blocks != [] and value.location is not None


def rows(record: Record) -> Iterator[tuple[Value, int]]:
    """Every value of a checkpoint, with the number of blocks of its part."""
    for part in (record, record.vision):
        if part:
            yield from ((value, len(part.blocks)) for value in part.values)


def places(family: Family) -> list[Place]:
    """Every value of a family once a host, in the order of its page."""
    found: dict[tuple[str, str], Place] = {}
    for stored in family.pages:
        for value, blocks in rows(stored.record):
            key = (value.host, value.name)
            place = found.setdefault(key, Place(family, stored, value, blocks))
            if not is_served(value):
                continue
            if not place.served:
                place.stored, place.value, place.blocks = stored, value, blocks
            place.serving += 1
            if value.reads and place.run is None:
                place.run = value
            if value.hf:
                place.spots[value.hf.path, value.hf.side, value.hf.element] += 1
    return list(found.values())


def by_name(families: Iterable[Family]) -> Mapping[str, list[Place]]:
    """The places of every value, by its name; families in their order."""
    found: dict[str, list[Place]] = {}
    for family in families:
        for place in places(family):
            found.setdefault(place.value.name, []).append(place)
    return found
