"""The SVG of a record's picture. One is drawn once for all pages that show the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from markupsafe import Markup, escape

from probe.render.pictures.bars import load
from probe.render.pictures.canvas import Canvas
from probe.render.pictures.cells import mask, pattern
from probe.render.pictures.curves import lines, spectrum
from probe.schema import Picture

KINDS: dict[str, Callable[[Picture], Canvas]] = {
    "mask": mask,
    "pattern": pattern,
    "load": load,
    "growth": lines,
    "scalars": lines,
    "rotary": spectrum,
    "slopes": spectrum,
    "decay": spectrum,
    "scales": lines,
    "passes": lines,
    "response": lines,
}

WORDS: dict[str, Any] = {"name": "", "label": "", "quirks": [], "statement": "", "blocks": None}
"""What a page says beside a drawing, and the drawing itself does not show."""


def svg(picture: Picture, alternative: str, named: Mapping[str, str] | None = None) -> Markup:
    """The drawing of a picture, with a text alternative.

    Args:
        picture: the picture.
        alternative: what it shows, in words.
        named: the roles of the series that are values, by their names.
    """
    shapes = _drawn(picture.model_copy(update=WORDS).model_dump_json(), tuple((named or {}).items()))
    return Markup(shapes.replace('aria-label=""', f'aria-label="{escape(alternative)}"', 1))


@cache
def _drawn(numbers: str, named: tuple[tuple[str, str], ...]) -> str:
    picture = Picture.model_validate_json(numbers)
    canvas = lines(picture, dict(named)) if named else KINDS[picture.kind](picture)
    return str(canvas.svg(""))
