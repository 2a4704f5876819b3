"""What a page shows of a record's pictures: on which card each stands, its caption, its key and its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from probe.render import context as c
from probe.render.pictures.draw import svg
from probe.render.pictures.looks import looks
from probe.render.pictures.merged import distinct
from probe.render.roles import term_role
from probe.render.standing import Standing
from probe.render.templating import render
from probe.render.text import figure, some_blocks
from probe.schema import Picture, Record, Vision

OF_THE_WIRING = frozenset({"mask", "rotary", "slopes"})
"""The kinds that a twin's run shows of a checkpoint that was only built; the others its weights decide."""


def on_card(standing: Standing, slug: str, vision: bool = False) -> list[Markup]:
    """The drawings of a quirk's card."""
    return [_drawing(standing, picture, part) for picture, part in _of(standing, vision) if slug in picture.quirks]


def on_no_card(standing: Standing, vision: bool = False) -> list[Markup]:
    """The drawings that belong to no quirk that holds."""
    return [_drawing(standing, picture, part) for picture, part in _of(standing, vision) if not picture.quirks]


def small(family: str, url: str, picture: Picture, blocks: int) -> Markup:
    """A family's picture among others', with its name and address, and without its numbers."""
    return render(_context(picture, blocks, family=family, url=url))


def _of(standing: Standing, vision: bool) -> list[tuple[Picture, Record | Vision]]:
    """The pictures of a checkpoint's page, with the record, or its vision encoder, that they were measured on.

    Series that would hide each other are one.
    """
    run = standing.run
    part = run.vision if run is not None and vision else run
    if part is None:
        return []
    return [(distinct(p), part) for p in part.pictures if standing.ran or p.kind in OF_THE_WIRING]


def _drawing(standing: Standing, picture: Picture, part: Record | Vision) -> Markup:
    named = {s.name: term_role(s.name.partition(", ")[0], part, picture.blocks) for s in picture.series}
    numbers = [(series.name, ", ".join(map(_number, series.numbers))) for series in picture.series]
    twin = "" if standing.ran else f"its twin {standing.twin_id}"
    return render(_context(picture, len(part.blocks), twin, numbers, named=named if picture.kind == "growth" else None))


def _context(
    picture: Picture,
    blocks: int,
    twin: str = "",
    numbers: Sequence[tuple[str, str]] = (),
    family: str = "",
    url: str = "",
    named: Mapping[str, str] | None = None,
) -> c.Drawing:
    return c.Drawing(
        kind=picture.kind,
        svg=svg(picture, (f"On {twin}: " if twin else "") + picture.statement, named),
        family=family,
        url=url,
        label=picture.label,
        where="" if picture.kind == "pattern" else some_blocks(picture.blocks, blocks),
        twin=twin,
        key=_key(picture, named),
        numbers=list(numbers),
        marked=list(picture.marked),
    )


def _key(picture: Picture, named: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """Look and label of each series, where there are several to tell apart."""
    if picture.kind == "load" or (len(picture.series) < 2 and picture.kind != "scalars"):
        return []
    return [(look.classes, look.label) for look in looks(picture, named)]


def _number(number: float | None) -> str:
    return "–" if number is None else figure(int(number) if number.is_integer() else number)
