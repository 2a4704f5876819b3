"""The index of all families, as the site publishes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from probe import names
from probe.index import (
    INDEX_VERSION,
    Index,
    IndexedCheckpoint,
    IndexedFamily,
    IndexedModule,
    IndexedTopic,
    IndexedValue,
)
from probe.render.catalog import Family, Stored
from probe.render.facets import facets, held, sees
from probe.render.places import Place, places
from probe.render.printout import modules
from probe.render.text import quirk_url, value_url, words
from probe.store import file_stem


def index(families: Iterable[Family], values: Mapping[str, list[Place]]) -> Index:
    """The index; ``values``: the places of every value by its name."""
    entries = [entry(family) for family in families]
    quirks: dict[str, tuple[str, int]] = {}
    for family in families:
        for slug, label in facets(family).quirks.items():
            quirks[slug] = (label, quirks.get(slug, ("", 0))[1] + 1)
    return Index(
        version=INDEX_VERSION,
        families=entries,
        values=[
            IndexedTopic(
                name=name,
                label=words(name),
                url=value_url(name),
                families=len({place.family.name for place in found if place.served}),
                also=[f"{other.tool} {other.name}" for other in names.of(name)],
            )
            for name, found in sorted(values.items())
        ],
        quirks=[
            IndexedTopic(name=slug, label=label, url=quirk_url(slug), families=count)
            for slug, (label, count) in sorted(quirks.items())
        ],
    )


def entry(family: Family) -> IndexedFamily:
    """One family."""
    of = facets(family)
    first = family.default.record
    classes: dict[str, None] = {}
    for stored in family.pages:
        record = stored.record
        shapes = [*record.shapes, *(record.vision.shapes if record.vision else [])]
        found = [record.checkpoint.architecture, *(s.module for s in shapes)]
        for name in [*found, *(sub.module for shape in shapes for sub in shape.sublayers)]:
            classes[name] = None
    return IndexedFamily(
        family=family.name,
        title=first.about.title,
        subtitle=first.about.subtitle,
        url=f"{family.name}/",
        classes=list(classes),
        organisations=list(of.organisations),
        topologies=list(of.topologies),
        mixers=list(of.mixers),
        feed_forward=list(of.feed_forward),
        vision=of.vision,
        quirks=list(of.quirks),
        checkpoints=[_checkpoint(family, stored) for stored in family.in_order],
        without_record=[e.id for e in family.listed if e.file not in family.stored],
        modules=list(dict.fromkeys(path for stored in family.pages for path in modules(stored.record))),
        called=_once(module for stored in family.pages for module in _called(family, stored)),
        images=_once(module for stored in family.pages for module in _images(family, stored)),
        values=[value for place in places(family) if place.served for value in _values(place)],
    )


def _once(found: Iterable[IndexedModule]) -> list[IndexedModule]:
    """One module a path, on the first page that has it."""
    first: dict[str, IndexedModule] = {}
    for module in found:
        first.setdefault(module.path, module)
    return list(first.values())


def _called(family: Family, stored: Stored) -> list[IndexedModule]:
    url = f"{family.uri(stored)}#l-returns"
    return [IndexedModule(path=row.path, url=url) for row in stored.record.returned if row.path]


def _images(family: Family, stored: Stored) -> list[IndexedModule]:
    images = stored.record.images
    url = f"{family.uri(stored)}#l-images"
    return [IndexedModule(path=row.path, url=url) for row in images.stations] if images else []


def _checkpoint(family: Family, stored: Stored) -> IndexedCheckpoint:
    record = stored.record
    behind = family.stored.get(file_stem(record.evidence.twin)) if record.evidence else None
    return IndexedCheckpoint(
        id=record.checkpoint.id,
        kind=record.checkpoint.kind,
        url=family.uri(stored),
        record=stored.raw_uri,
        architecture=record.checkpoint.architecture,
        model_type=record.checkpoint.model_type,
        parameters=record.checkpoint.parameters,
        blocks=len(record.blocks),
        hidden_size=record.sizes.get("hidden_size"),
        vision=sees(record) or (behind is not None and sees(behind.record)),
        quirks=[e.slug for e in held(record)],
    )


def _values(place: Place) -> list[IndexedValue]:
    def made(path: str | None, side: str | None, element: int | str | None) -> IndexedValue:
        return IndexedValue.model_validate(
            {
                "host": place.value.host,
                "name": place.value.name,
                "path": path,
                "side": side,
                "element": element,
                "url": place.url,
            }
        )

    return [made(*spot) for spot in place.spots] or [made(None, None, None)]
