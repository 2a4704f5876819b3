"""The guide's pictures: grids of blocks, lines over a factor, bars of contributions."""

from __future__ import annotations

from probe.render.pictures.canvas import Canvas, Rectangle
from probe.render.pictures.scales import Scale, scale, written
from probe.schema.guide import Drawing

CELL, ROW = 24, 11
LEFT, LETTER, LEVELS = 32, 6.4, 10
LONGEST = 13
"""Most letters of a token."""
WORD, LINE, DEEPEST = 62, 17, 5
"""Width and height of a cell with a word in it, and the strongest colour that leaves the word legible."""

WIDTH, HEIGHT, FOOT, TOP = 350, 190, 32, 22
ROLES = {"attention_output": "attention", "mlp_output": "mlp"}
ORDER = ("attention", "mark", "mlp", "vision", "mixture", "norm")


def drawn(drawing: Drawing) -> Canvas:
    """The picture of a drawing's numbers."""
    return {"grid": grid, "words": words, "lines": lines, "bars": bars}[drawing.kind](drawing)


def roles(drawing: Drawing) -> dict[str, str]:
    """The role that colours each series, by its label; empty where there is none."""
    names = sorted(drawing.series, key=lambda name: (name not in ROLES, name))
    if drawing.kind == "lines":
        names = list(drawing.series)
        return dict(zip(names, ORDER, strict=False))
    free = [role for role in ORDER if role not in ROLES.values()]
    return {name: ROLES.get(name) or free.pop(0) for name in names}


def full(drawing: Drawing) -> float:
    """What the strongest colour of a grid stands for: 1 where all numbers are shares, else the largest of them."""
    most = max(abs(number) for row in drawing.grid for number in row if number is not None)
    return 1.0 if 0.5 < most <= 1.05 else most


def grid(drawing: Drawing) -> Canvas:
    """A row of cells for each block, block 0 at the foot; the stronger the larger, in another colour below zero."""
    ticks = [_short(tick) for tick in drawing.ticks]
    wide, high = len(ticks) * CELL, len(drawing.grid) * ROW
    turned = any(len(tick) * LETTER > CELL - 2 for tick in ticks)
    foot = (max(map(len, ticks)) * LETTER + 8 if turned else 12) + 16
    canvas = Canvas(LEFT + wide + 8, 4 + high + foot)
    top, most = 4, full(drawing)
    canvas.rectangles("ground", [(LEFT, top, wide, high)])
    cells: dict[str, list[Rectangle]] = {}
    for block, row in enumerate(drawing.grid):
        y = top + high - (block + 1) * ROW
        for x, number in enumerate(row):
            level = 0 if number is None else min(LEVELS, round(abs(number) / most * LEVELS))
            if level:
                role = "attention" if (number or 0) > 0 else "mark"
                cell = (LEFT + x * CELL + 0.5, y + 0.5, CELL - 1, ROW - 1)
                cells.setdefault(f"fill r-{role} l{level}", []).append(cell)
    for look, mine in sorted(cells.items()):
        canvas.rectangles(look, mine)
    step = 1 if len(drawing.grid) < 8 else 5
    for block in range(0, len(drawing.grid), step):
        canvas.text("tick", (LEFT - 5, top + high - (block + 0.5) * ROW + 3.5), str(block), "right")
    for x, tick in enumerate(ticks):
        middle = LEFT + (x + 0.5) * CELL
        if turned:
            canvas.text("tick", (middle + 3.5, top + high + 6), tick, "right", upright=True)
        else:
            canvas.text("tick", (middle, top + high + 13), tick, "center")
    canvas.text("name", (8, top + high / 2), f"{drawing.y} →", "center", upright=True)
    canvas.text("name", (LEFT + wide / 2, canvas.height - 3), f"{drawing.x} →", "center")
    return canvas


def words(drawing: Drawing) -> Canvas:
    """A row of words for each block, block 0 at the foot; the stronger the colour the larger the number."""
    wide, high = len(drawing.ticks) * WORD, len(drawing.grid) * LINE
    top = 4
    canvas = Canvas(LEFT + wide + 8, top + high + 30)
    canvas.rectangles("ground", [(LEFT, top, wide, high)])
    cells: dict[str, list[Rectangle]] = {}
    said: list[tuple[float, float, str]] = []
    for block, (row, tokens) in enumerate(zip(drawing.grid, drawing.words, strict=True)):
        y = top + high - (block + 1) * LINE
        for x, (number, token) in enumerate(zip(row, tokens, strict=True)):
            left = LEFT + x * WORD
            if level := round((number or 0) * DEEPEST):
                role = "attention" if token == drawing.marked else "flow"
                cells.setdefault(f"fill r-{role} l{level}", []).append((left + 0.5, y + 0.5, WORD - 1, LINE - 1))
            said.append((left + WORD / 2, y + LINE / 2 + 3.5, _short(token, 9)))
    for look, mine in sorted(cells.items()):
        canvas.rectangles(look, mine)
    for centre, foot, word in said:
        canvas.text("word", (centre, foot), word, "center")
    for block in range(0, len(drawing.grid), 5):
        canvas.text("tick", (LEFT - 5, top + high - (block + 0.5) * LINE + 3.5), str(block), "right")
    for x, tick in enumerate(drawing.ticks):
        canvas.text("tick", (LEFT + (x + 0.5) * WORD, top + high + 13), _short(tick, 9), "center")
    canvas.text("name", (8, top + high / 2), f"{drawing.y} →", "center", upright=True)
    canvas.text("name", (LEFT + wide / 2, canvas.height - 3), f"{drawing.x} →", "center")
    return canvas


def lines(drawing: Drawing) -> Canvas:
    """A line for each series over the numbers along x."""
    canvas = Canvas(WIDTH, HEIGHT)
    along = [float(tick) for tick in drawing.ticks]
    across = Scale(along[0], along[-1], LEFT + 10, WIDTH - 8, powers=False)
    up = scale([0.0, 1.0], HEIGHT - FOOT, TOP)
    _upward(canvas, drawing, up)
    for name, role in roles(drawing).items():
        points = [(across.at(x), up.at(y)) for x, y in zip(along, drawing.series[name], strict=True)]
        canvas.lines(f"line r-{role}", [points])
        canvas.dots(f"dots r-{role} small", points)
    for tick in across.ticks(4):
        canvas.text("tick", (across.at(tick), HEIGHT - FOOT + 13), written(tick) if tick > 0 else f"{tick:g}", "center")
    canvas.text("name", (WIDTH / 2, HEIGHT - 3), f"{drawing.x} →", "center")
    return canvas


def bars(drawing: Drawing) -> Canvas:
    """A bar for each series beside each other at every place along x, up or down from zero."""
    canvas = Canvas(WIDTH, HEIGHT)
    every = [number for row in drawing.series.values() for number in row]
    room = 0.06 * (max(every) - min(every))
    up = Scale(min(0.0, min(every) - room), max(every) + room, HEIGHT - FOOT, TOP, powers=False)
    _upward(canvas, drawing, up)
    wide = (WIDTH - LEFT - 18) / len(drawing.ticks)
    named = roles(drawing)
    bar = wide * 0.8 / len(named)
    for place, (name, role) in enumerate(named.items()):
        boxes = [
            (LEFT + 10 + x * wide + wide * 0.1 + place * bar, min(up.at(y), up.at(0)), bar, abs(up.at(y) - up.at(0)))
            for x, y in enumerate(drawing.series[name])
        ]
        canvas.rectangles(f"fill r-{role}", [box for box in boxes if box[3] > 0.05])
    canvas.lines("line r-flow", [[(LEFT + 10, up.at(0)), (WIDTH - 8, up.at(0))]])
    for x in range(0, len(drawing.ticks), 5):
        canvas.text("tick", (LEFT + 10 + (x + 0.5) * wide, HEIGHT - FOOT + 13), drawing.ticks[x], "center")
    canvas.text("name", (WIDTH / 2, HEIGHT - 3), f"{drawing.x} →", "center")
    return canvas


def _upward(canvas: Canvas, drawing: Drawing, up: Scale) -> None:
    """Rules and numbers of the upward scale, and what it measures."""
    ticks = up.ticks()
    canvas.lines("rule", [[(LEFT + 10, up.at(tick)), (WIDTH - 8, up.at(tick))] for tick in ticks])
    for tick in ticks:
        canvas.text("tick", (LEFT + 4, up.at(tick) + 3.5), f"{tick:g}", "right")
    canvas.text("name", (0, 10), f"↑ {drawing.y}")


def _short(token: str, most: int = LONGEST) -> str:
    """A token as a label of so many letters, with a sign where it is nothing but space."""
    word = " ".join(token.split()) or "␣"
    return word if len(word) <= most else word[: most - 1] + "…"
