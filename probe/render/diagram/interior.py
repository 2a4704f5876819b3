"""What is inside a sublayer's box: the attention's wiring, the MLP's, a mixture's panels, or chips in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from probe.render.diagram import mixer
from probe.render.diagram.canvas import CHIP, Canvas, Label, Placed
from probe.render.diagram.model import Lane
from probe.render.diagram.rail import Rail
from probe.render.diagram.room import Filled, Room

ATTENTION = ("queries", "keys", "values", "scores", "probabilities", "head_outputs", "premix")
TOP = 38.0
GAP = 10.0
BRANCH = 21.0


def fill(canvas: Canvas, lane: Lane, room: Room) -> Filled:
    """Draws the inside of ``lane``'s box."""
    return _panels(canvas, lane, room) if lane.panels else values(canvas, lane.sub.kind, lane.inside, room)


def values(canvas: Canvas, kind: str, inside: Mapping[str, Label], room: Room) -> Filled:
    """Draws the values inside the box of a sublayer of some kind, or of what feeds one."""
    labels = list(inside.values())
    if not labels:
        return Filled(room.top - 2, None)
    named = {label.text: label for label in labels}
    wired = mixer.wiring(named) if kind == "mixer" and len(named) == len(labels) else None
    if wired:
        return mixer.draw(canvas, named, wired, room)
    attention = all(f"attention_{name}" in inside for name in ATTENTION)
    joined = kind == "mlp"
    if attention:
        parts = {name: inside[f"attention_{name}"] for name in ATTENTION}
        return (_attention_narrow if room.narrow else _attention)(canvas, parts, room)
    if room.narrow:
        return _stack(canvas, labels, room, joined=joined)
    return _leftwards(canvas, labels, room, joined=joined)


def _attention(canvas: Canvas, at: dict[str, Label], room: Room) -> Filled:
    left, right, y = room.left, room.right, room.top + 4
    q = canvas.place(at["queries"], left, y)
    k = canvas.place(at["keys"], q.right + 14, y)
    v = canvas.place(at["values"], right - at["values"].width, y)
    y += CHIP + 30
    scores = canvas.place(at["scores"], left, y)
    pattern = canvas.place(at["probabilities"], scores.right + 62, y)
    y += CHIP + 26
    heads = canvas.place(at["head_outputs"], right - at["head_outputs"].width, y)
    premix = canvas.place(at["premix"], left + room.drift, y)
    join = q.bottom + 12
    meet = q.cx if q.cx <= scores.right - 14 else scores.cx
    canvas.line([(k.cx, k.bottom), (k.cx, join), (meet, join), (meet, scores.y)], "attention")
    straight = [(q.cx, q.bottom), (q.cx, scores.y)]
    canvas.line(
        straight if meet == q.cx else [straight[0], (q.cx, join), (meet, join)], "attention", arrow=meet == q.cx
    )
    canvas.line([(scores.right, scores.cy), (pattern.x, pattern.cy)], "attention")
    canvas.caption("softmax", (scores.right + pattern.x) / 2 - 2, scores.cy - 5)
    down = min(max(heads.x + 34, pattern.x + 20), pattern.right - 14)
    canvas.line([(down, pattern.bottom), (down, heads.y)], "attention")
    canvas.line([(v.cx, v.bottom), (v.cx, heads.y)], "attention")
    canvas.line([(heads.x, heads.cy), (premix.right, premix.cy)], "attention")
    return Filled(y + CHIP, (premix.cx, premix.bottom))


def _attention_narrow(canvas: Canvas, at: dict[str, Label], room: Room) -> Filled:
    rail = Rail(canvas, room.left, room.top, "attention")
    rail.on(at["queries"])
    rail.joins(at["keys"])
    rail.on(at["scores"])
    rail.on(at["probabilities"])
    rail.joins(at["values"])
    rail.on(at["head_outputs"])
    end = rail.on(at["premix"])
    return Filled(end.bottom, (rail.x, end.bottom))


def _leftwards(canvas: Canvas, labels: Sequence[Label], room: Room, *, joined: bool) -> Filled:
    """Rows of chips; the last row runs to the left, so that the result leaves near the stream. Arrows join them where
    each is made from the one before, which a record tells of no other sublayer than an MLP.
    """
    rows: list[list[Label]] = [[]]
    for label in labels:
        if rows[-1] and sum(x.width + 26 for x in rows[-1]) + label.width > room.right - room.left:
            rows.append([])
        rows[-1].append(label)
    y = room.top + 2
    before: Placed | None = None
    for number, row in enumerate(rows):
        backwards = (len(rows) - 1 - number) % 2 == 0
        x = room.left + room.drift if backwards and len(rows) == 1 else room.left
        if backwards and len(rows) > 1:
            x = room.right - sum(label.width + 26 for label in row) + 26
        for label in reversed(row) if backwards else row:
            placed = Placed(label, x, y)
            x = placed.right + 26
            canvas.place(label, placed.x, y)
        order = _placed(
            row,
            room.left + room.drift if backwards and len(rows) == 1 else (x - 26 - sum(r.width + 26 for r in row) + 26),
            y,
            backwards,
        )
        for a, b in zip(order, order[1:], strict=False) if joined else ():
            canvas.line([(a.x, a.cy), (b.right, b.cy)] if backwards else [(a.right, a.cy), (b.x, b.cy)], a.label.role)
        if before and joined:
            first = order[0]
            mid = (before.bottom + first.y) / 2
            canvas.line(
                [(before.cx, before.bottom), (before.cx, mid), (first.cx, mid), (first.cx, first.y)], first.label.role
            )
        before = order[-1]
        y += CHIP + 22
    assert before is not None
    return Filled(y - 22, (before.cx, before.bottom) if joined else None)


def _placed(row: Sequence[Label], x: float, y: float, backwards: bool) -> list[Placed]:
    """The labels of a row at their places, in the order of the flow."""
    out = []
    for label in reversed(row) if backwards else row:
        out.append(Placed(label, x, y))
        x = out[-1].right + 26
    return out[::-1] if backwards else out


def _stack(canvas: Canvas, labels: Sequence[Label], room: Room, *, joined: bool) -> Filled:
    """One chip a row, in order; strung on a line where they are made one from another."""
    y = room.top
    line_x = room.left + 18
    for k, label in enumerate(labels):
        placed = canvas.place(label, room.left, y)
        if k and joined:
            canvas.line([(line_x, y - GAP), (line_x, y)], label.role, arrow=False)
        y = placed.bottom + GAP
    return Filled(y - GAP, (line_x, y - GAP) if joined else None)


def _indent(title: str, number: int) -> float:
    """How far right a panel's label stands: the router's weights and indices both branch off its logits."""
    return BRANCH if title == "router" and number else 0


def _panels(canvas: Canvas, lane: Lane, room: Room) -> Filled:
    """The mixture: router, routed experts and shared expert; the last two meet at the way out."""
    most = (
        (room.right - room.left - GAP * (len(lane.panels) - 1)) / (1 if room.narrow else len(lane.panels)) - 16 - BRANCH
    )
    panels = [(title, [replace(label, most=most) for label in labels]) for title, labels in lane.panels]
    widths = [max(label.width + _indent(title, k) for k, label in enumerate(labels)) + 16 for title, labels in panels]
    deep = max(len(labels) for _, labels in lane.panels)
    spare = (room.right - room.left - sum(widths)) / max(1, len(widths) - 1)
    y, x = room.top, room.left
    ends: list[tuple[float, float]] = []
    edges: list[tuple[float, float]] = []
    for (title, labels), wide in zip(panels, widths, strict=True):
        width = room.right - room.left if room.narrow else wide
        rows = len(labels) if room.narrow else deep
        height = 28 + rows * (CHIP + GAP)
        role = "mlp" if title == "shared expert" else "mixture"
        canvas.panel(role, title, x, y, width, height)
        top = end = y + 26
        stem = x + 8 + 18 if room.narrow else x + 30
        for k, label in enumerate(labels):
            placed = canvas.place(label, x + 8 + _indent(title, k), top)
            if k and label.state != "absent":
                if _indent(title, k):
                    stem = x + 17
                    canvas.line([(stem, y + 20 + CHIP), (stem, placed.cy), (placed.x, placed.cy)], role)
                else:
                    canvas.line([(stem, top - GAP), (stem, top)], role)
            top += CHIP + GAP
            if label.state != "absent":
                end = top - GAP
        ends.append((x + 30, end))
        edges.append((x, x + width))
        if room.narrow:
            y += height + GAP
        else:
            x += width + spare
    if room.narrow:
        return Filled(y - GAP, (room.left + 26, y - GAP))
    bottom = room.top + 28 + deep * (CHIP + GAP)
    if lane.panels[0][0] == "router" and len(edges) > 1:
        at = room.top + 26 + CHIP / 2
        canvas.line([(edges[0][1], at), (edges[1][0], at)], "mixture")
    sums = [end for (title, _), end in zip(lane.panels, ends, strict=True) if title != "router"]
    out = (sums[0][0], bottom + 14)
    for x0, y0 in sums:
        canvas.line(
            [(x0, y0), (x0, bottom + 14), (out[0] - 1, bottom + 14)] if x0 > out[0] + 1 else [(x0, y0), out],
            "mixture",
            arrow=False,
        )
    if len(sums) > 1:
        canvas.dot(*out)
    return Filled(bottom + 18, out)
