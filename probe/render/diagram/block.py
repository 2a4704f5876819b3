"""The composition of a block's drawing: the stream runs down, each sublayer leaves it and comes back at its add.

Two layouts of the same parts: a wide one, in which a sublayer's way in stands above its box and its way out below,
and a narrow one for phones, in which everything stands in one column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from markupsafe import Markup

from probe.render.diagram.canvas import CHIP, Canvas, Label, Placed
from probe.render.diagram.interior import TOP, fill, values
from probe.render.diagram.model import Block, Lane
from probe.render.diagram.room import Room

WIDE, NARROW = 668.0, 326.0
BESIDE = 34.0
"""From where a sublayer's way ends to its contribution, so that ⊗ between them touches neither."""

BETWEEN, SCALED = 14.0, 36.0
"""Between two things on the stream, and from an add up to what multiplies the stream before it."""

JOINT = 24.0
"""From the left of a box to where what feeds a sublayer is added to what it reads."""


@dataclass(frozen=True)
class Frame:
    """The fixed places of a layout."""

    width: float
    stream: float
    left: float
    right: float
    narrow: bool


DESK = Frame(WIDE, 62, 150, WIDE - 2, False)
PHONE = Frame(NARROW, 15, 38, NARROW - 1, True)


def draw(block: Block, narrow: bool, title: str, stream: str) -> Markup:
    """The SVG of a block, wide or narrow. ``stream``: the role that colours the stream."""
    frame = PHONE if narrow else DESK
    canvas = Canvas(frame.width, stream)
    y = 2.0
    top = y
    y = stations(canvas, frame, block.starts, y, 0)
    for lanes, mids in zip(block.groups, block.mids, strict=True):
        y = group(canvas, frame, lanes, y)
        y = stations(canvas, frame, mids, y, 20)
    bottom = tail(canvas, frame, block, y, top + CHIP / 2)
    return canvas.svg(bottom + 3, title, "narrow" if narrow else "wide")


def tail(canvas: Canvas, frame: Frame, block: Block, y: float, top: float) -> float:
    """What follows the last add, and the stream from ``top`` to the block's end. Returns where that is."""
    for scale in block.factors:
        y = factor(canvas, frame, scale, y + 26)
    for label in block.others:
        y = station(canvas, frame, label, y + 16)
    bottom = y + 26
    canvas.trunk(frame.stream, top, bottom)
    return station(canvas, frame, block.end, bottom) if block.end else bottom


def stations(canvas: Canvas, frame: Frame, labels: list[Label], y: float, gap: float) -> float:
    """What stands on the stream one below the other, the first ``gap`` below ``y``. Returns where they end."""
    for place, label in enumerate(labels):
        y = station(canvas, frame, label, y + (BETWEEN if place else gap))
    return y


def station(canvas: Canvas, frame: Frame, label: Label, y: float) -> float:
    """A value of the stream, or a norm that it passes, on the stream's line. Returns where it ends."""
    canvas.place(label, 1 if frame.narrow else max(1.0, frame.stream - label.width / 2), y)
    return y + CHIP


def factor(canvas: Canvas, frame: Frame, label: Label, y: float) -> float:
    """What multiplies the stream, centred at ``y``. Returns where it ends."""
    canvas.node(label, frame.stream, y)
    name = Label(label.text, label.card, label.role, "norm", hint=label.hint)
    x = frame.stream + (22 if frame.narrow else frame.left - frame.stream)
    placed = canvas.place(name, x, y - CHIP / 2)
    canvas.line([(placed.x, y), (frame.stream + 11, y)], label.role)
    return y + 13


def group(canvas: Canvas, frame: Frame, lanes: list[Lane], y: float) -> float:
    """One lane, or several that read one point of the stream and join at one add. Returns where they end."""
    if len(lanes) == 1:
        [lane] = lanes
        return _lane(canvas, frame, lane, y, frame.stream, frame.stream)
    step = 9 if frame.narrow else 26
    read, write = frame.stream + step, frame.stream + 2 * step - (2 if frame.narrow else 0)
    tap = y + 16
    canvas.dot(frame.stream, tap)
    ins: list[float] = []
    outs: list[float] = []
    for lane in lanes:
        y = _lane(canvas, frame, lane, y + 8, read, write, ins, outs)
    canvas.line([(frame.stream, tap), (read, tap), (read, ins[-1])], "flow", arrow=False)
    join = y + 22
    canvas.line([(write, outs[0]), (write, join), (frame.stream + 11, join)], "flow")
    canvas.node(lanes[-1].add, frame.stream, join)
    return join + 12


def _lane(
    canvas: Canvas,
    frame: Frame,
    lane: Lane,
    y: float,
    source: float,
    sink: float,
    ins: list[float] | None = None,
    outs: list[float] | None = None,
) -> float:
    """Draws a sublayer from its tap at ``source`` to its add at ``sink``; returns how far down it reaches."""
    alone = outs is None
    if lane.joins:
        y = _feeders(canvas, frame, lane, y, source)
    tap = y + 24 + CHIP / 2 if lane.entry else y + 24 + 19
    joint = frame.left + JOINT
    if lane.joins:
        canvas.line([(joint, y), (joint, tap - CHIP / 2)], "flow")
    elif alone:
        canvas.dot(source, tap)
    if ins is not None:
        ins.append(tap)
    if lane.entry:
        last = _entry(canvas, frame, lane.entry, None if lane.joins else source, tap, halo=not alone)
        top = last.bottom + 16
        over = frame.left + 18 if frame.narrow else last.cx
        canvas.line([(over, last.bottom), (over, top)], "flow")
    else:
        top = tap - 19
        if lane.joins:
            canvas.line([(joint, y), (joint, top)], "flow")
        else:
            canvas.line([(source, tap), (frame.left, tap)], "flow", halo=not alone)
    room = Room(
        frame.left + (12 if frame.narrow else 14),
        frame.right - (12 if frame.narrow else 14),
        top + TOP,
        frame.narrow,
        _drift(lane),
    )
    filled = fill(canvas, lane, room)
    bottom = filled.bottom + 13
    canvas.box(
        lane.box,
        frame.left,
        top,
        frame.right - frame.left,
        bottom - top,
        "" if frame.narrow else lane.subtitle,
        lane.note,
    )
    row = bottom + 16
    target = sink + 11 if alone else sink
    left = max(frame.left, target + BESIDE) if lane.factor else frame.left
    ends = _way_out(canvas, frame, lane, filled.exit, bottom, row, left)
    at = ends.cy
    if lane.factor:
        middle = (ends.x + target) / 2
        canvas.line([(ends.x, at), (target, at)], "flow", arrow=alone)
        canvas.node(lane.factor, middle, at)
    else:
        canvas.line([(ends.x, at), (target, at)], "flow", arrow=alone)
    if alone:
        canvas.node(lane.add, sink, at)
        if lane.scaled:
            canvas.node(lane.scaled, sink, at - SCALED)
    if outs is not None:
        outs.append(at)
    return ends.bottom


def _drift(lane: Lane) -> float:
    """How far right the last value inside stands, so that the line from it falls straight onto what follows."""
    return 0 if lane.post is None or lane.contribution is None else lane.contribution.width - 12


def _feeders(canvas: Canvas, frame: Frame, lane: Lane, y: float, source: float) -> float:
    """What is added to the stream for this lane alone, and that add. Returns where the add ends."""
    joint = frame.left + JOINT
    side = 12 if frame.narrow else 14
    tap = y + 24 + CHIP / 2
    canvas.dot(source, tap)
    canvas.line([(source, tap), (frame.left, tap)], "flow")
    y += 24
    for place, fed in enumerate(lane.fed):
        if place:
            canvas.line([(joint, y), (joint, y + 18)], "flow")
            y += 18
        if not fed.inside:
            y = canvas.place(replace(fed.box, form="norm"), frame.left, y).bottom
            continue
        room = Room(frame.left + side, frame.right - side, y + TOP, frame.narrow, 0)
        bottom = values(canvas, "attention", fed.inside, room).bottom + 13
        subtitle = "" if frame.narrow else fed.subtitle
        canvas.box(fed.box, frame.left, y, frame.right - frame.left, bottom - y, subtitle, "")
        y = bottom
    assert lane.joins is not None
    middle = y + 18 + 10.5
    canvas.line([(joint, y), (joint, middle - 10.5)], "flow")
    canvas.dot(source, middle)
    canvas.line([(source, middle), (joint - 10.5, middle)], "flow")
    canvas.node(lane.joins, joint, middle)
    return middle + 10.5


def _entry(canvas: Canvas, frame: Frame, labels: list[Label], source: float | None, tap: float, halo: bool) -> Placed:
    """The way in: a norm and the values on it, from the stream if it comes from there. Returns the last of them."""
    placed: list[Placed] = []
    x, y = frame.left, tap - CHIP / 2
    gap = 22.0
    if not frame.narrow and sum(label.width for label in labels) + gap * (len(labels) - 1) > frame.right - frame.left:
        gap = 12.0
    for label in labels:
        if placed and (frame.narrow or x + label.width > frame.right + 1):
            x, y = (frame.left, y + CHIP + 9) if frame.narrow else (frame.right - label.width, y + CHIP + 12)
            below = frame.left + 18 if frame.narrow else max(x + 14, min(placed[-1].cx, placed[-1].right - 14))
            canvas.line([(below, placed[-1].bottom), (below, y)], "flow")
        elif placed:
            canvas.line([(placed[-1].right, y + CHIP / 2), (x, y + CHIP / 2)], "flow")
        placed.append(canvas.place(label, x, y))
        x = placed[-1].right + gap
    if source is not None:
        canvas.line([(source, tap), (placed[0].x, tap)], "flow", halo=halo)
    return placed[-1]


def _way_out(
    canvas: Canvas, frame: Frame, lane: Lane, leaves: tuple[float, float] | None, bottom: float, y: float, left: float
) -> Placed:
    """The way out: the norm after the sublayer, then the contribution from ``left`` on. Returns the latter's place."""
    contribution = lane.contribution or Label(lane.sub.contribution, lane.box.card, lane.box.role)
    role = lane.box.role
    if frame.narrow:
        stations = [label for label in (lane.post, contribution) if label]
        placed: Placed | None = None
        for label in stations:
            x = left + 18
            canvas.line([(x, bottom if placed is None else placed.bottom), (x, y)], role if placed is None else "norm")
            placed = canvas.place(label, left, y)
            y = placed.bottom + 9
        assert placed is not None
        return placed
    ends = canvas.place(contribution, left, y)
    first = ends
    if lane.post:
        first = canvas.place(lane.post, ends.right + 26, y)
        canvas.line([(first.x, first.cy), (ends.right, ends.cy)], "norm")
    start = leaves or (first.x + 18, bottom)
    x = min(max(start[0], first.x + 16), first.right - 16)
    if abs(x - start[0]) < 1:
        canvas.line([start, (x, y)], role)
    else:
        canvas.line([start, (start[0], bottom - 5), (x, bottom - 5), (x, y)], role)
    return ends
