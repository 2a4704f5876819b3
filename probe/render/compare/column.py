"""A checkpoint's column: its diagrams in pieces, its facts and values as rows that other columns may share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from markupsafe import Markup, escape
from pydantic import BaseModel

from probe.numerals import unit
from probe.render.catalog import Family, Stored
from probe.render.diagram.model import Reader
from probe.render.diagram.pieces import pieces
from probe.render.figures import equation
from probe.render.know.subject import Subject
from probe.render.naming import in_block
from probe.render.other_names import by_tool
from probe.render.places import is_served
from probe.render.standing import KIND_WORDS, Standing, error_text
from probe.render.text import answer, cell, figure, parameters, row_id, some_blocks, words
from probe.schema import Record, Shape, Value, Vision
from probe.store import file_stem

ROOT = "@/"
"""Stands in every link for the way to the site's root."""


class Row(BaseModel):
    """A fact. ``key`` names it in all columns; ``html`` says it; ``has``: whether the checkpoint has what it names."""

    key: str
    html: str
    has: bool = True


class Group(BaseModel):
    name: str
    rows: list[Row]


class Drawn(BaseModel):
    """A piece of a diagram: the roles it covers, and its SVG."""

    rows: list[str]
    svg: str


class ShapeColumn(BaseModel):
    label: str
    blocks: str
    pieces: list[Drawn]


class Column(BaseModel):
    """All that a comparison needs of a checkpoint. ``shape``: the one that most blocks of the text model have."""

    page: str
    title: str
    checkpoint: str
    shape: int
    shapes: list[ShapeColumn]
    groups: list[Group]


def column(family: Family, stored: Stored) -> Column:
    """The column of a checkpoint."""
    record = stored.record
    behind = family.stored.get(file_stem(record.evidence.twin)) if record.evidence else None
    standing = Standing(record, behind.record if behind else None)
    page = family.uri(stored)
    order = list(dict.fromkeys(record.blocks))
    groups = [
        ("Checkpoint", _checkpoint(record)),
        ("Topology", _topology(record)),
        ("Norms", _norms(record)),
        ("Identity", _identity(standing)),
        ("Sizes", _sizes(record)),
        ("Quirks", _quirks(record)),
        ("Facts", _facts(record)),
        ("Config", (Row(key=r.name, html=escape(figure(r.value))) for r in record.config)),
        ("Values", _values(record, page)),
    ]
    return Column(
        page=page.rstrip("/"),
        title=record.about.title,
        checkpoint=record.checkpoint.id,
        shape=order.index(Counter(record.blocks).most_common(1)[0][0]),
        shapes=list(_shapes(standing, page)),
        groups=[Group(name=name, rows=list(rows)) for name, rows in groups],
    )


def _shapes(standing: Standing, page: str) -> Iterator[ShapeColumn]:
    """The shapes of the blocks, in the order in which they first occur; the vision encoder's last."""
    record = standing.record
    for part in (record, record.vision):
        if part:
            yield from (_shape(standing, part, index, page) for index in dict.fromkeys(part.blocks))


def _shape(standing: Standing, part: Record | Vision, index: int, page: str) -> ShapeColumn:
    record = standing.record
    vision = part is record.vision
    prefix, name, stream = ("model.vision.", "vision", "vision") if vision else ("model.", "text", "stream")
    shape, mine = part.shapes[index], [i for i, s in enumerate(part.blocks) if s == index]
    label = f"vision encoder, {shape.label}" if vision else shape.label
    others = None if vision else partial(by_tool, Subject(standing))
    block = Reader(shape, index, mine, part.values, prefix, name, others).read()
    first = f"{'vision-' if vision else ''}block-{mine[0]}"
    drawn = [
        Drawn(rows=piece.rows, svg=_linked(piece.svg, page, first))
        for piece in pieces(block, f"{record.about.title}, {label}", stream)
    ]
    return ShapeColumn(label=label, blocks=some_blocks(mine, len(part.blocks)), pieces=drawn)


def _linked(svg: str, page: str, block: str) -> str:
    """A drawing whose parts link to their cards and rows on the checkpoint's page."""
    for card, place in (("p-", f"{block}.p-"), ("v-", "v-")):
        svg = str(svg).replace(f'href="#{card}', f'href="{ROOT}{page}#{place}')
    return svg.replace('tabindex="0"', 'role="link"')


def _checkpoint(record: Record) -> Iterator[Row]:
    checkpoint = record.checkpoint
    yield Row(key="standing", html=escape(KIND_WORDS[checkpoint.kind]))
    yield Row(key="parameters", html=parameters(checkpoint.parameters))
    yield Row(key="class", html=Markup("<code>{}</code>").format(checkpoint.architecture))
    yield Row(key="attention of a default load", html=escape(checkpoint.attn))
    vision = record.vision
    yield Row(key="vision encoder", html=escape(vision.title if vision else "none"), has=vision is not None)


def _topology(record: Record) -> Iterator[Row]:
    total = len(record.blocks)
    yield Row(key="blocks", html=str(total))
    yield Row(key="block shapes", html=str(len(record.shapes)))
    yield Row(key="topology", html=_each(record, lambda shape: shape.topology))
    yield Row(key="layer types", html=_each(record, lambda shape: words(shape.layer_type or "one kind")))
    yield Row(key="sublayers", html=_each(record, lambda shape: " → ".join(_sublayers(shape))))
    yield Row(key="multiplied by", html=_each(record, lambda s: ", ".join(f.name for f in s.factors) or "nothing"))
    yield Row(key="keys and values", html=_each(record, lambda shape: shape.lends or "own"))


def _sublayers(shape: Shape) -> Iterator[str]:
    for sub in shape.sublayers:
        yield f"{sub.host or sub.contribution.removesuffix('_output')} ({sub.kind})"


def _each(record: Record, said: Callable[[Shape], str]) -> str:
    """What is said of the blocks' shapes, and how many blocks it holds for where it differs."""
    counts = Counter(said(record.shapes[shape]) for shape in record.blocks)
    if len(counts) == 1:
        return str(escape(next(iter(counts))))
    return str(Markup("<br>").join(f"{text} × {count}" for text, count in counts.items()))


def _norms(record: Record) -> Iterator[Row]:
    """Where a norm stands, by role: native names differ too much to be compared."""
    for kind, label in (("attention mixer", "sequence mixing"), ("mlp moe", "feed-forward"), ("branch", "branch")):
        kinds = kind.split()
        if not any(sub.kind in kinds for shape in record.shapes for sub in shape.sublayers):
            continue
        for place, field in (("before", "pre_norm"), ("after", "post_norm")):
            normed = [
                index
                for index, shape in enumerate(record.blocks)
                if any(getattr(sub, field) for sub in record.shapes[shape].sublayers if sub.kind in kinds)
            ]
            yield Row(key=f"{place} {label}", html=escape(some_blocks(normed, len(record.blocks))), has=bool(normed))


def _identity(standing: Standing) -> Iterator[Row]:
    record = standing.record
    found = {identity.expression: identity for identity in standing.identities(False)}
    sums, errors = [], []
    for expression in dict.fromkeys(record.shapes[shape].identity for shape in record.blocks):
        mine = [i for i, shape in enumerate(record.blocks) if record.shapes[shape].identity == expression]
        where = f" on {some_blocks(mine, len(record.blocks))}" if len(mine) < len(record.blocks) else ""
        sums.append(Markup("<code>{}</code>{}").format(equation(expression, record, mine), where))
        measured = found.get(expression)
        errors.append("not evaluated" if measured is None else f"{error_text(measured.max_abs_error)}{where}")
    yield Row(key="sum of a block", html=Markup("<br>").join(sums))
    yield Row(key="largest error", html=escape("; ".join(errors)))


def _sizes(record: Record) -> Iterator[Row]:
    several: dict[str, list[int]] = {}
    for shape in record.shapes:
        for name, size in shape.sizes.items():
            several.setdefault(name, []).append(size)
    for name, size in record.sizes.items():
        found = sorted({*several.get(name, [size])})
        yield Row(key=words(name), html=" or ".join(map(figure, found)))


def _quirks(record: Record) -> Iterator[Row]:
    for quirk in record.experiments:
        measured = ", ".join(f"{words(name)} {figure(value)}" for name, value in quirk.measured.items())
        where = some_blocks(quirk.blocks, len(record.blocks))
        said = " · ".join(filter(None, [quirk.verdict, *([where, measured] if quirk.verdict == "yes" else [])]))
        yield Row(key=quirk.label, html=escape(said), has=quirk.verdict == "yes")


def _facts(record: Record) -> Iterator[Row]:
    for fact in record.facts:
        yield Row(key=fact.label, html=escape(f"{answer(fact.value)} {unit(fact.value, fact.unit)}".strip()))


def _values(record: Record, page: str) -> Iterator[Row]:
    """Each value once, with its native places below the block, a line each, and what it takes to have it."""
    found: dict[str, list[Value]] = {}
    for value in record.values:
        key = f"{value.host.removeprefix('model.')}.{value.name}" if value.host != "model" else value.name
        found.setdefault(key, []).append(value)
    for key, rows in found.items():
        have = list(filter(is_served, rows))
        if have:
            yield Row(key=key, html=Markup("<br>").join(_places(have, record, page)))
        else:
            yield Row(key=key, html=escape(rows[0].reason or rows[0].why or "not on this checkpoint"), has=False)


def _places(rows: Sequence[Value], record: Record, page: str) -> Iterator[Markup]:
    """Where rows of one value are, with their blocks; those that differ in their blocks' class only stand together."""
    alike: dict[tuple[str, ...], list[Value]] = {}
    for value in rows:
        place = " ".join(in_block(value.hf) or ("no single place",))
        notes = [f"needs {value.needs}" if value.needs else "", "" if value.edits is not False else "read-only"]
        alike.setdefault((place, *notes), []).append(value)
    for (place, *notes), mine in alike.items():
        link = f"{ROOT}{page}#{row_id(mine[0], record.values)}"
        blocks = sorted(block for value in mine for block in value.blocks or ())
        if mine[0].blocks is not None and len(blocks) < len(record.blocks):
            notes = [some_blocks(blocks, len(record.blocks)), *notes]
        said = ", ".join(filter(None, notes))
        text = Markup('<a href="{}">{}</a>').format(link, cell(Markup("<code>{}</code>").format(place)))
        yield text + (Markup(" <small>{}</small>").format(said) if said else "")


def named(columns: Sequence[Column]) -> list[str]:
    """The columns' titles, with the checkpoint where two are of one family."""
    titles = [column.title for column in columns]
    return [c.title if titles.count(c.title) == 1 else f"{c.title} · {c.checkpoint}" for c in columns]


def shortened(columns: Sequence[Column]) -> list[str]:
    """What a cell is labelled with on a narrow screen: the column's title, or the checkpoint where two share it."""
    titles = [column.title for column in columns]
    return [c.title if titles.count(c.title) == 1 else c.checkpoint for c in columns]
