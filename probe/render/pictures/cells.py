"""Pictures of cells, a query a row: masks, and attention patterns with their tokens."""

from __future__ import annotations

import itertools

from probe.render.pictures.canvas import Canvas, Rectangle
from probe.schema import Picture

CELL = 5
MARGIN = 30
FOOT = 18
BAND = 3
TOKEN = 15
LETTER = 6.4
LEVELS = 10
LONGEST = 10
"""Most letters of a token."""


def mask(picture: Picture) -> Canvas:
    """A cell for each query and key, filled where the query reaches the key."""
    rows = picture.rows or []
    height, width = len(rows), max(map(len, rows), default=0)
    canvas = Canvas(MARGIN + width * CELL + 6, BAND + 2 + height * CELL + FOOT)
    left, top = MARGIN, BAND + 2
    canvas.rectangles("ground", [(left, top, width * CELL, height * CELL)])
    canvas.rectangles("fill r-attention", list(_runs(rows, left, top)))
    across = [[(left, top + y * CELL), (left + width * CELL, top + y * CELL)] for y in range(1, height)]
    down = [[(left + x * CELL, top), (left + x * CELL, top + height * CELL)] for x in range(1, width)]
    canvas.lines("grid", [*across, *down])
    for first, last in picture.marked.values():
        start, size = first * CELL, (last - first + 1) * CELL
        canvas.rectangles("fill r-vision", [(left + start, 0, size, BAND), (left - BAND - 2, top + start, BAND, size)])
    step, foot = picture.step, top + height * CELL
    canvas.text("tick", (left - 7, top + 8), "0", "right")
    canvas.text("tick", (left - 7, foot - 1), str((height - 1) * step), "right")
    canvas.text("tick", (left, foot + 12), "0")
    canvas.text("tick", (left + width * CELL, foot + 12), str((width - 1) * step), "right")
    canvas.text("name", (left + width * CELL / 2, foot + 12), f"{picture.axes[0].split()[0]} →", "center")
    canvas.text("name", (left - 9, top + height * CELL / 2), f"← {picture.axes[1].split()[0]}", "center", upright=True)
    return canvas


def _runs(rows: list[str], left: float, top: float) -> list[Rectangle]:
    """A rectangle for each stretch of filled cells of a row."""
    found: list[Rectangle] = []
    for y, row in enumerate(rows):
        x = 0
        for filled, run in itertools.groupby(row):
            size = len(list(run))
            if filled == "1":
                found.append((left + x * CELL, top + y * CELL, size * CELL, CELL))
            x += size
    return found


def pattern(picture: Picture) -> Canvas:
    """A cell for each query and key, the stronger the more of its pattern the query gives the key; tokens beside it."""
    shares = [[int(share) for share in row.split()] for row in picture.rows or []]
    tokens = [shown(token) for token in picture.ticks or []]
    size = len(shares) * TOKEN
    room = max(map(len, tokens), default=0) * LETTER + 6
    canvas = Canvas(room + size + 6, room + size + 2)
    canvas.rectangles("ground", [(room, room, size, size)])
    for level in range(1, LEVELS + 1):
        cells = [
            (room + x * TOKEN + 0.5, room + y * TOKEN + 0.5, TOKEN - 1, TOKEN - 1)
            for y, row in enumerate(shares)
            for x, share in enumerate(row)
            if share and -(-share * LEVELS // 100) == level
        ]
        canvas.rectangles(f"fill r-attention l{level}", cells)
    for place, token in enumerate(tokens):
        middle = room + (place + 0.5) * TOKEN + 3.5
        canvas.text("tick", (room - 5, middle), token, "right")
        canvas.text("tick", (middle, room - 5), token, upright=True)
    return canvas


def shown(token: str) -> str:
    """A token as a label: without the spaces around it, or with a sign for them where it is nothing else."""
    word = token.strip() or token.replace("\n", "↵").replace(" ", "␣") or "∅"
    return word if len(word) <= LONGEST else word[: LONGEST - 1] + "…"
