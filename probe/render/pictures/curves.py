"""Pictures of numbers along an axis: lines over the blocks, and dots over a head's pairs or an attention's heads."""

from __future__ import annotations

from collections.abc import Mapping

from probe.render.pictures.canvas import Canvas
from probe.render.pictures.looks import looks
from probe.render.pictures.scales import Scale, scale, written
from probe.schema import Picture

WIDTH, HEIGHT = 300, 160
LEFT, RIGHT, TOP, FOOT = 40, 10, 22, 20
STILL, APART = 14, 8
"""Height of the row of what does not turn, and of the gap above it."""
DENSE = 40
"""Numbers along x up to which a line has dots; dots of more are small."""


def lines(picture: Picture, named: Mapping[str, str] | None = None) -> Canvas:
    """A line for each series through the numbers it has, with a dot for each where there are few.

    Args:
        picture: the picture.
        named: the roles of the series that are values, by their names.
    """
    canvas = Canvas(WIDTH, HEIGHT)
    known = [number for series in picture.series for number in series.numbers if number is not None]
    up = scale(known, HEIGHT - FOOT, TOP, zero=picture.kind in ("growth", "scales", "passes"))
    along = _along(picture)
    _axes(canvas, picture, up, along)
    for look, series in zip(looks(picture, named), picture.series, strict=True):
        points = [(along.at(x), up.at(number)) for x, number in enumerate(series.numbers) if number is not None]
        canvas.lines(f"line {look.classes}", [points] if len(points) > 1 else [])
        if len(series.numbers) <= DENSE:
            canvas.dots(f"dots {look.classes}", points)
    return canvas


def spectrum(picture: Picture) -> Canvas:
    """A dot for each number of each series; those of a null stand in a row of their own below."""
    canvas = Canvas(WIDTH, HEIGHT)
    every = [number for series in picture.series for number in series.numbers]
    still = STILL if None in every else 0
    room = still + APART if still else 0
    up = scale([number for number in every if number is not None], HEIGHT - FOOT - room, TOP)
    along = _along(picture)
    _axes(canvas, picture, up, along, still)
    size = " small" if len(picture.series[0].numbers) > DENSE else ""
    for look, series in zip(looks(picture), picture.series, strict=True):
        points = [
            (along.at(x), HEIGHT - FOOT - still / 2 if number is None else up.at(number))
            for x, number in enumerate(series.numbers)
        ]
        canvas.dots(f"dots {look.classes}{size}", points)
        if look.form == "hollow":
            canvas.dots(f"core{size}", points)
    return canvas


def _along(picture: Picture) -> Scale:
    longest = max(len(series.numbers) for series in picture.series)
    return Scale(-0.5, longest - 0.5, LEFT, WIDTH - RIGHT, powers=False)


def _axes(canvas: Canvas, picture: Picture, up: Scale, along: Scale, still: int = 0) -> None:
    """Rules and numbers of the upward scale, the first and last number along, and what runs along."""
    foot = HEIGHT - FOOT
    ticks = up.ticks()
    canvas.lines("rule", [[(LEFT, up.at(tick)), (WIDTH - RIGHT, up.at(tick))] for tick in ticks])
    for tick in ticks:
        canvas.text("tick", (LEFT - 6, up.at(tick) + 3.5), written(tick), "right")
    if still:
        canvas.rectangles("ground", [(LEFT, foot - still, WIDTH - RIGHT - LEFT, still)])
        canvas.text("tick", (LEFT - 6, foot - still / 2 + 3.5), "still", "right")
    canvas.text("name", (0, 10), f"↑ {picture.axes[1]}")
    last = round(along.high - 0.5)
    ends = ("0", str(last * picture.step))
    if picture.ticks:
        ends = written(float(picture.ticks[0])), written(float(picture.ticks[-1]))
    canvas.text("tick", (along.at(0), foot + 14), ends[0], "center")
    if last:
        canvas.text("tick", (along.at(last), foot + 14), ends[1], "center")
    canvas.text("name", ((LEFT + WIDTH - RIGHT) / 2, foot + 14), f"{picture.axes[0]} →", "center")
