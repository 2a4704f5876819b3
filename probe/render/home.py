"""The index: a card a family, and what the cards are sorted and filtered by."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from markupsafe import Markup

from probe.render import overviews as o
from probe.render import sections
from probe.render.catalog import Family
from probe.render.facets import AVAILABLE, MIXERS, SIZES, Facets, facets
from probe.render.templating import render
from probe.render.text import parameters

SHOWN = 4
"""Quirks that a card names; it counts the others."""
ORDERS = [
    ("title", "by name"),
    ("parameters", "largest first"),
    ("blocks", "most blocks first"),
    ("quirks", "most quirks first"),
    ("checkpoints", "most checkpoints first"),
]
KINDS = {"mlp": "MLP", "moe": "mixture of experts"}
VISION = {"yes": "with a vision encoder", "no": "text only"}


def index(families: Iterable[Family]) -> Markup:
    """The index of all families, by title."""
    found = sorted(((f, facets(f)) for f in families), key=lambda pair: _title(pair[0]).lower())
    every = [of for _, of in found]
    quirks = {slug: label for of in every for slug, label in of.quirks.items()}
    groups = [
        _group("quirk", "Quirks", [list(of.quirks) for of in every], quirks, every=True),
        _group("organisation", "Organisation", [of.organisations for of in every]),
        _group("mixer", "Sequence mixer", [of.mixers for of in every], MIXERS),
        _group("feed", "Feed-forward", [of.feed_forward for of in every], KINDS),
        _group("topology", "Topology", [of.topologies for of in every]),
        _group("size", "Parameters", [of.sizes for of in every], SIZES, ordered=True),
        _group("vision", "Vision", [_vision(of) for of in every], VISION, ordered=True),
        _group("available", "What was run", [of.available for of in every], AVAILABLE, ordered=True),
    ]
    page = render(o.Index([card(*pair) for pair in found], [g for g in groups if len(g.options) > 1], ORDERS))
    return Markup(re.sub(r">\s+<", "><", page))  # with hundreds of cards a browser feels every node


def card(family: Family, of: Facets) -> o.FamilyCard:
    """The family's card. A tiny twin's sizes are not the family's: they are named as the twin's, and sort last."""
    record = family.default.record
    labels = [e.label for e in record.experiments if e.verdict == "yes"]
    sizes = [s.record.checkpoint.parameters for s in family.stored.values() if s.record.checkpoint.kind != "tiny"]
    ids = len([entry for entry in family.listed if entry.kind != "tiny"])
    blocks, ran_twin = str(len(record.blocks)), record.checkpoint.kind == "tiny"
    figures = [("values", str(sections.served(record)))]
    if not ran_twin:
        figures.insert(0, ("blocks", blocks))
    if ids:
        figures.append(("checkpoint" if ids == 1 else "checkpoints", str(ids)))
    if sizes:
        low, high = parameters(min(sizes)), parameters(max(sizes))
        figures.append(("parameters", low if low == high else f"{low} – {high}"))
    if ran_twin:
        figures.append(("blocks in its tiny twin", blocks))
    return o.FamilyCard(
        family=family.name,
        title=_title(family),
        subtitle=record.about.subtitle,
        url=f"{family.name}/",
        chips=labels[:SHOWN],
        more=max(0, len(labels) - SHOWN),
        blocks=len(record.blocks),
        ticks=ticks(record.layer_types),
        figures=figures,
        facets={
            "quirk": " ".join(of.quirks),
            "organisation": " ".join(of.organisations),
            "mixer": " ".join(of.mixers),
            "feed": " ".join(of.feed_forward),
            "topology": " ".join(of.topologies),
            "size": " ".join(of.sizes),
            "vision": " ".join(_vision(of)),
            "available": " ".join(of.available),
        },
        order={
            "title": _title(family).lower(),
            "parameters": str(max(sizes, default=0)),
            "blocks": "0" if ran_twin else blocks,
            "quirks": str(len(labels)),
            "checkpoints": str(ids),
        },
    )


def ticks(layer_types: Sequence[str]) -> list[tuple[str, str]]:
    """One SVG path a layer type, a line along each run of its blocks; its dashes are the blocks."""
    runs: dict[str, list[list[int]]] = {}
    for index, kind in enumerate(layer_types):
        mine = runs.setdefault(kind, [])
        if mine and mine[-1][1] == index:
            mine[-1][1] = index + 1
        else:
            mine.append([index, index + 1])
    return [
        (str(min(tone, 5)), "".join(f"M{start} .5H{end}" for start, end in mine))
        for tone, mine in enumerate(runs.values())
    ]


def _title(family: Family) -> str:
    return family.default.record.about.title


def _vision(of: Facets) -> list[str]:
    return ["yes" if of.vision else "no"]


def _group(
    name: str,
    title: str,
    found: Sequence[Sequence[str]],
    labels: dict[str, str] | None = None,
    *,
    every: bool = False,
    ordered: bool = False,
) -> o.FacetGroup:
    """A filter over what each family has; the most frequent first, or in the order of ``labels``."""
    names = labels or {}
    counts = Counter(key for keys in found for key in keys)
    keys = [k for k in names if k in counts] if ordered else sorted(counts, key=lambda k: (-counts[k], k.lower()))
    return o.FacetGroup(name, title, every, [o.Option(key, names.get(key, key), counts[key]) for key in keys])
