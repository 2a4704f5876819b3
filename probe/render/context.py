"""What each template is given: one class a template, its fields are the template's whole context.

A template opens with the same list as a comment; a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True)
class Chip:
    """A quirk that holds. ``measured``: (name, figure) pairs; ``run``: what stands behind it; ``url``: its page;
    ``pictures``: the drawings of its card.
    """

    id: str
    label: str
    statement: str
    where: str
    measured: list[tuple[str, str]]
    run: str
    url: str
    pictures: list[Markup]


@dataclass(frozen=True)
class Hero:
    family: str
    title: str
    subtitle: str
    checkpoint: str
    standing: str
    twin: str | None
    twin_url: str | None
    facts: list[tuple[str, str]]
    chips: list[Chip]
    compare_url: str


@dataclass(frozen=True)
class Entry:
    """A line of the checkpoint selector; ``url`` is None where there is no record, and ``note`` says why."""

    id: str
    url: str | None
    kind: str
    note: str
    current: bool


@dataclass(frozen=True)
class Selector:
    entries: list[Entry]


@dataclass(frozen=True)
class Node:
    """A station of a strip: ``card`` is the anchor of the value read there, if any, and ``names`` its other names."""

    label: str
    value: str | None
    names: dict[str, tuple[str, str]]
    card: str | None
    note: str | None
    repeat: int | None
    role: str


@dataclass(frozen=True)
class Strip:
    name: str
    nodes: list[Node]


@dataclass(frozen=True)
class Tick:
    """A block on the slider: the colour of its layer type, and the index of its shape."""

    index: int
    tone: str
    shape: int
    text: str


@dataclass(frozen=True)
class TypeLegend:
    """A shape in words and where it occurs. ``tone`` and ``form`` are those of its ticks."""

    label: str
    tone: str
    form: str
    blocks: str


@dataclass(frozen=True)
class Part:
    """The card of a part that is not a value."""

    id: str
    kind: str
    title: str
    role: str
    rows: list[tuple[str, str]]


@dataclass(frozen=True)
class ShapeView:
    """One shape's drawings and cards. ``sizes``: JSON of the sizes that dims resolve to on such a block."""

    index: int
    label: str
    first: int
    blocks: str
    form: str
    wide: Markup
    narrow: Markup
    parts: list[Part]
    sizes: str
    size_line: list[tuple[str, str, bool]]


@dataclass(frozen=True)
class Sum:
    """A block's identity with what its evaluation gave; ``evidence`` says on which run."""

    expression: Markup
    where: str
    error: str
    tolerance: str
    dtype: str
    evidence: str
    holds: bool | None


@dataclass(frozen=True)
class Figure:
    """A figure of a stack of blocks. ``key``: look and words of each colour and stroke that its drawings have."""

    name: str
    strip: Markup
    blocks: int
    ticks: list[Tick]
    legend: list[TypeLegend]
    shapes: list[ShapeView]
    counts: str
    key: list[tuple[str, str]]
    sums: list[Sum]


@dataclass(frozen=True)
class VisionSection:
    title: str
    module: str
    facts: list[tuple[str, str]]
    figure: Markup
    chips: list[Chip]
    drawings: list[Markup]


@dataclass(frozen=True)
class Row:
    """A value's row. ``state``: `run`, `built`, `never`; ``card``: the facts that the hover card shows.

    ``names``: other names by the choices of the switch, each with what stands beside it.
    """

    id: str
    name: str
    names: dict[str, tuple[str, str]]
    role: str
    layout: str
    dims: list[str]
    description: Markup
    read_at: str
    condition: str | None
    warn: bool
    state: str
    state_text: str
    where: str
    show: str | None
    card: list[tuple[str, Markup]]


@dataclass(frozen=True)
class Host:
    """A table of values. ``where``: the blocks that have all of them, where others have none."""

    host: str
    id: str
    module: str
    where: str
    rows: list[Row]


@dataclass(frozen=True)
class Values:
    """``setup``: what every recipe of the page stands on."""

    hosts: list[Host]
    setup: Markup


@dataclass(frozen=True)
class IdentityRow:
    name: str
    expression: Markup
    where: str
    holds: bool
    error: str
    tolerance: str
    dtype: str
    reason: str | None
    part: str


@dataclass(frozen=True)
class Identities:
    rows: list[IdentityRow]
    standing: str


@dataclass(frozen=True)
class Verdict:
    label: str
    verdict: str
    statement: str
    where: str
    url: str
    second: str


@dataclass(frozen=True)
class Experiments:
    verdicts: list[Verdict]
    counts: str


@dataclass(frozen=True)
class FactRow:
    label: str
    value: str
    unit: str
    statement: str


@dataclass(frozen=True)
class Drawing:
    """A picture.

    ``family`` and ``url``: whose it is, beside others'; ``twin``: whose run it shows, where not the checkpoint's;
    ``key``: (look, name) of each series; ``numbers``: (name, figures) of each; ``marked``: what its coloured stretches
    are.
    """

    kind: str
    svg: Markup
    family: str
    url: str
    label: str
    where: str
    twin: str
    key: list[tuple[str, str]]
    numbers: list[tuple[str, str]]
    marked: list[str]


@dataclass(frozen=True)
class Pictures:
    drawings: list[Markup]
    standing: str


@dataclass(frozen=True)
class Facts:
    facts: list[FactRow]
    twin: str | None
    twin_url: str | None


@dataclass(frozen=True)
class Printout:
    checkpoint: str
    body: Markup


@dataclass(frozen=True)
class Card:
    title: str
    id: str
    rows: list[tuple[str, str]]


@dataclass(frozen=True)
class ConfigCards:
    cards: list[Card]


@dataclass(frozen=True)
class Notes:
    body: Markup | None
    vision: Markup | None


@dataclass(frozen=True)
class DeclaredRow:
    name: str
    value: Markup
    doc: Markup | None


@dataclass(frozen=True)
class ModuleSection:
    module: str
    doc: Markup
    declared: list[DeclaredRow]


@dataclass(frozen=True)
class Provenance:
    rows: list[tuple[str, str]]
    evidence: list[str]
    record_url: str
    schema_url: str | None


@dataclass(frozen=True)
class Page:
    """A family page: its sections, rendered, in order."""

    family: str
    hero: Markup
    rest: list[Markup]
