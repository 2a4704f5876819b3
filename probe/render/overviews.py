"""What the templates of the overviews are given: the index of families, and the pages of values and of quirks.

As in :mod:`probe.render.context`: one class a template, its fields are the template's whole context.
"""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from probe.names import Name, Tool


@dataclass(frozen=True)
class FamilyCard:
    """A family on the index.

    Attributes:
        ticks: the blocks as (tone, SVG path) pairs, one a layer type.
        facets: facet to its keys, separated by spaces; what the filters read.
        order: name of an order to the family's place in it, as a number or text.
    """

    family: str
    title: str
    subtitle: str
    url: str
    chips: list[str]
    more: int
    blocks: int
    ticks: list[tuple[str, str]]
    figures: list[tuple[str, str]]
    facets: dict[str, str]
    order: dict[str, str]


@dataclass(frozen=True)
class Option:
    key: str
    label: str
    count: int


@dataclass(frozen=True)
class FacetGroup:
    """A filter. ``every``: a family must have all that is chosen, not only one of it."""

    name: str
    title: str
    every: bool
    options: list[Option]


@dataclass(frozen=True)
class Index:
    families: list[FamilyCard]
    groups: list[FacetGroup]
    orders: list[tuple[str, str]]


@dataclass(frozen=True)
class Link:
    text: str
    url: str


@dataclass(frozen=True)
class Odd:
    """What holds for some of the families that serve a value.

    Attributes:
        of: how many serve it.
        others: whether ``families`` are those for which it does not hold, being the fewer.
    """

    label: str
    note: str
    count: int
    of: int
    others: bool
    families: list[Link]


@dataclass(frozen=True)
class ValuePlace:
    """A value on one host of one family. ``spots``: the native places, with the checkpoints that each is of."""

    id: str
    family: Link
    host: str
    module: str
    spots: list[tuple[Markup, str]]
    held: str | None
    where: str
    condition: str | None
    warn: bool
    edit: str


@dataclass(frozen=True)
class ValuePart:
    """The value in the text models, or in the vision encoders.

    Attributes:
        several_hosts: whether families have it on different modules.
        absent: reasons why families do not serve it, with those families.
    """

    name: str
    title: str
    layout: str
    dims: list[str]
    description: str
    places: list[ValuePlace]
    odd: list[Odd]
    absent: list[tuple[str, list[Link]]]
    several_hosts: bool
    summary: str


@dataclass(frozen=True)
class ValuePage:
    name: str
    parts: list[ValuePart]
    index_url: str
    other_names: list[Name]
    tools: dict[str, Tool]
    labels: dict[str, Markup]


@dataclass(frozen=True)
class ValueEntry:
    name: str
    url: str
    layout: str
    dims: list[str]
    description: str
    families: int
    role: str


@dataclass(frozen=True)
class ValueHost:
    host: str
    id: str
    entries: list[ValueEntry]


@dataclass(frozen=True)
class ValueIndex:
    """``unserved``: values that records name and no family serves, with the reasons they give."""

    hosts: list[ValueHost]
    unserved: list[tuple[str, list[str]]]
    total: int


@dataclass(frozen=True)
class QuirkRow:
    """Checkpoints that have the quirk alike; ``cells`` are the measured numbers, in the order of the part's
    ``columns``.
    """

    family: Link
    checkpoints: list[Link]
    where: str
    statement: str
    cells: list[str]
    run: str


@dataclass(frozen=True)
class QuirkPart:
    """The quirk of text models, or of vision encoders."""

    title: str
    method: Markup | None
    code: Markup | None
    function: str
    columns: list[str]
    rows: list[QuirkRow]
    drawings: list[Markup]
    undecided: list[tuple[Link, str]]
    summary: str


@dataclass(frozen=True)
class QuirkPage:
    slug: str
    label: str
    parts: list[QuirkPart]
    index_url: str
    filter_url: str


@dataclass(frozen=True)
class QuirkEntry:
    slug: str
    label: str
    url: str
    families: int
    undecided: int
    method: str


@dataclass(frozen=True)
class QuirkIndex:
    parts: list[tuple[str, list[QuirkEntry]]]
    total: int
