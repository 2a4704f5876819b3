"""Pictures of bars: how many tokens each expert takes, a row for each block."""

from __future__ import annotations

from probe.render.pictures.canvas import Canvas
from probe.schema import Picture

WIDTH, ROW, GAP = 300, 24, 6
LEFT, RIGHT, TOP, FOOT = 60, 28, 4, 18
MOST = 8
"""Most rows; of more, some at equal steps are drawn."""


def load(picture: Picture) -> Canvas:
    """A row of bars for each block, on one scale, with a line at the even share and the largest number beside it."""
    step = -(-len(picture.series) // MOST)
    rows = [(series.name, series.numbers) for series in picture.series][::step]
    canvas = Canvas(WIDTH, TOP + len(rows) * (ROW + GAP) + FOOT)
    most = max((number or 0 for _, numbers in rows for number in numbers), default=1) or 1
    wide = WIDTH - LEFT - RIGHT
    even = []
    for place, (label, numbers) in enumerate(rows):
        foot, bar = TOP + place * (ROW + GAP) + ROW, wide / len(numbers)
        loads = [number or 0.0 for number in numbers]
        gap = min(2.0, bar / 5)
        heights = [load / most * ROW for load in loads]
        canvas.rectangles(
            "fill r-mixture",
            [(LEFT + x * bar + gap / 2, foot - high, bar - gap, high) for x, high in enumerate(heights) if high],
        )
        canvas.lines("rule", [[(LEFT, foot), (LEFT + wide, foot)]])
        canvas.text("tick", (LEFT - 8, foot), label, "right")
        canvas.text("tick", (LEFT + wide + 5, foot - max(heights) + 7), f"{max(loads):g}")
        level = foot - sum(loads) / len(loads) / most * ROW
        even.append([(LEFT, level), (LEFT + wide, level)])
    canvas.lines("line dotted r-flow", even)
    canvas.text("tick", (LEFT + 2, canvas.height - 4), "0")
    longest = max(len(numbers) for _, numbers in rows)
    canvas.text("tick", (LEFT + wide - 2, canvas.height - 4), str(longest - 1), "right")
    canvas.text("name", (LEFT + wide / 2, canvas.height - 4), f"{picture.axes[0]} →", "center")
    return canvas
