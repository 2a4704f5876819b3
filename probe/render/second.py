"""A second verdict: what the tiny twin answers where real weights were put to the same test and answered otherwise.

A record of real weights names no twin. The one that is likest stands beside it: of the same class, with or without a
vision encoder as it is, and with the fewest other entries of the config that are no sizes.
"""

from __future__ import annotations

from collections.abc import Iterable

from probe.render.text import some_blocks
from probe.schema import Experiment, Record

Answer = tuple[str, tuple[tuple[str, str], ...]]


def likest(record: Record, others: Iterable[Record]) -> Record | None:
    """The twin of a checkpoint whose weights ran; None for another record, or where the family has no such twin."""
    if record.checkpoint.kind != "weights":
        return None
    twins = [
        other
        for other in others
        if other.checkpoint.kind == "tiny"
        and other.checkpoint.architecture == record.checkpoint.architecture
        and (other.vision is None) == (record.vision is None)
    ]
    return min(twins, key=lambda twin: (_differences(record, twin), twin.checkpoint.id), default=None)


def _differences(one: Record, two: Record) -> int:
    flags = [
        {row.name: row.value for row in record.config if row.value is None or isinstance(row.value, (bool, str))}
        for record in (one, two)
    ]
    return sum(flags[0].get(name) != flags[1].get(name) for name in flags[0].keys() | flags[1].keys())


def second(own: Experiment, record: Record, twin: Record | None, *, vision: bool) -> str:
    """The twin's verdict in words where it is another, or holds on other blocks of a type; else empty."""
    behind = (twin.vision if vision else twin) if twin else None
    here = record.vision if vision else record
    found = next((each for each in behind.experiments if each.slug == own.slug), None) if behind else None
    if twin is None or behind is None or here is None or found is None:
        return ""
    types = ([], []) if vision else (record.layer_types, twin.layer_types)
    if _answer(own, types[0], set(types[1])) == _answer(found, types[1], set(types[0])):
        return ""
    where = some_blocks(found.blocks, len(behind.blocks)) if found.verdict == "yes" else ""
    return f"{twin.checkpoint.id}, {found.verdict}{f' on {where}' if where else ''}"


def _answer(experiment: Experiment, layer_types: list[str], known: set[str]) -> Answer:
    """A verdict, and for each type of block that both have whether it holds on all of them, some or none."""
    if experiment.verdict != "yes" or experiment.blocks is None:
        return experiment.verdict, ()
    shares = {}
    for kind in sorted(known & set(layer_types)):
        holds = [index in experiment.blocks for index, each in enumerate(layer_types) if each == kind]
        shares[kind] = "all" if all(holds) else "some" if any(holds) else "none"
    return experiment.verdict, tuple(shares.items())
