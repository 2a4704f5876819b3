"""What families are sorted and filtered by: facts of all of a family's records together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from probe.recurrences import RECURRENCES
from probe.render.catalog import Family
from probe.schema import Experiment, Record, Shape

BELOW = ((10**9, "1b"), (10**10, "10b"), (10**11, "100b"))
SIZES = {"1b": "below 1 B", "10b": "1 to 10 B", "100b": "10 to 100 B", "more": "100 B and more"}
MIXERS = RECURRENCES | {"convolution-mixers": "short convolution", "fixed-decay": "linear attention of fixed decay"}
"""What sequence mixers are called: by their recurrence, or, where none is named, by the quirk that holds of them."""
AVAILABLE = {"weights": "real weights run", "config": "built from a config", "tiny": "tiny twin run"}


@dataclass(frozen=True)
class Facets:
    """Each field: the family's values of one facet, sorted.

    Attributes:
        mixers: `attention`, a key of `MIXERS`, or the host of a sequence mixer of which no run told more, within its
            block or wrapper, e.g. `linear_attn`.
        feed_forward: `mlp`, `moe`; empty where the blocks have neither.
        sizes: keys of `SIZES`, for the parameters of published checkpoints; empty where there are twins only.
        available: keys of `AVAILABLE`.
        quirks: slug to label, in the order of the page's chips.
    """

    organisations: tuple[str, ...]
    topologies: tuple[str, ...]
    mixers: tuple[str, ...]
    feed_forward: tuple[str, ...]
    sizes: tuple[str, ...]
    available: tuple[str, ...]
    vision: bool
    quirks: dict[str, str]


def facets(family: Family) -> Facets:
    records = [stored.record for stored in family.stored.values()]
    sublayers = [sub for record in records for shape in record.shapes for sub in shape.sublayers]
    kinds = {record.checkpoint.kind for record in records}
    classes = {size(r.checkpoint.parameters) for r in records if r.checkpoint.kind != "tiny"}
    return Facets(
        organisations=_sorted(entry.id.partition("/")[0] for entry in family.listed if "/" in entry.id),
        topologies=_sorted(shape.topology for shape in _shapes(records)),
        mixers=_sorted(name for record in records for name in _mixers(record)),
        feed_forward=_sorted(sub.kind for sub in sublayers if sub.kind in ("mlp", "moe")),
        sizes=tuple(key for key in SIZES if key in classes),
        available=tuple(kind for kind in AVAILABLE if kind in kinds),
        vision=any(map(sees, records)),
        quirks={e.slug: e.label for record in (s.record for s in family.pages) for e in held(record)},
    )


def sees(record: Record) -> bool:
    """Whether a checkpoint has a vision encoder that was looked at."""
    return record.vision is not None or record.images is not None


def held(record: Record) -> Iterator[Experiment]:
    """The quirks that hold on a checkpoint, those of its vision encoder last."""
    for part in (record, record.vision):
        yield from (e for e in (part.experiments if part else []) if e.verdict == "yes")


def size(parameters: int) -> str:
    """The key in `SIZES` of a number of parameters."""
    return next((key for below, key in BELOW if parameters < below), "more")


def _sorted(found: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(found), key=str.lower))


def _shapes(records: Iterable[Record]) -> Iterator[Shape]:
    for record in records:
        yield from record.shapes


def _mixers(record: Record) -> Iterator[str]:
    yes = [e for e in record.experiments if e.verdict == "yes" and e.slug in MIXERS]
    for block, shape in enumerate(record.blocks):
        named = next((e.slug for e in yes if e.blocks is None or block in e.blocks), None)
        for sub in record.shapes[shape].sublayers:
            if sub.kind == "mixer":
                host = (sub.host or sub.module).rpartition(".")[2]  # the same inside a wrapper
                yield sub.recurrence or named or host
            elif sub.kind == "attention":
                yield "attention"
