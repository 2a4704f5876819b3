"""The inside of a recurrent mixer: its convolution, what the recurrence takes, its result and states, and the gate.

The arrows follow from what the values are. A record has them where a run found them: as input and output of the
convolution, as arguments and results of the function that runs the recurrence, as what its result is gated with, and as
what the output projection takes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from probe.render.diagram.canvas import CHIP, Canvas, Label, Placed
from probe.render.diagram.rail import Rail
from probe.render.diagram.room import Filled, Room

CONVOLUTION = ("conv_input", "conv_output")
STEPS = ("mixer_dt", "mixer_step_size", "mixer_decay")
"""The step size of a scan as it is taken, as it is used, and the decay that it gives."""
RESULT = "recurrence_output"
STATES = ("state_out", "token_states", "normalizer_out", "stabilizer_out")
GATE, END = "mixer_gate", "attention_premix"
ROLE, TITLE = "attention", "recurrence"
GAP, DOWN = 12.0, 24.0
"""Between chips side by side, and from one row to the next."""


@dataclass(frozen=True)
class Wiring:
    """The values of a mixer by their part in it; each list in the order of a forward.

    Attributes:
        factors: what the convolution's input is the product of, where there is no recurrence.
        convolution: its input and output, as far as they are read.
        taken: what the recurrence takes, but for ``steps``.
        steps: the step size and what is made from it, one from another.
        result: what the recurrence gives; None where there is none.
        states: what it leaves behind.
        gate: whether the result is gated.
    """

    factors: list[str]
    convolution: list[str]
    taken: list[str]
    steps: list[str]
    result: str | None
    states: list[str]
    gate: bool

    def arrows(self) -> Iterator[tuple[list[str], str]]:
        """Values and what the drawing's arrows say is made from them; of several, at least from one."""
        yield from (([factor], CONVOLUTION[0]) for factor in self.factors)
        yield from (([a], b) for a, b in zip(self.convolution, self.convolution[1:], strict=False))
        yield from (([a], b) for a, b in zip(self.steps, self.steps[1:], strict=False))
        inside = [*self.taken, *self.steps]
        if self.result:
            yield from (([value], self.result) for value in inside)
            yield from ((inside, state) for state in self.states)
        for last in filter(None, (self.result or self.convolution[-1], GATE if self.gate else None)):
            yield [last], END


def wiring(names: Collection[str]) -> Wiring | None:
    """How these values of a mixer are made one from another; None where they do not tell."""
    if END not in names or not (RESULT in names or set(CONVOLUTION) <= {*names}):
        return None
    recurrent = RESULT in names
    steps = [name for name in STEPS if name in names] if "mixer_dt" in names else []
    placed = {*CONVOLUTION, *steps, RESULT, *STATES, GATE, END}
    rest = [name for name in names if name not in placed]
    return Wiring(
        factors=[] if recurrent else rest,
        convolution=[name for name in CONVOLUTION if name in names],
        taken=rest if recurrent else [],
        steps=steps,
        result=RESULT if recurrent else None,
        states=[name for name in STATES if name in names],
        gate=GATE in names,
    )


def draw(canvas: Canvas, labels: Mapping[str, Label], wired: Wiring, room: Room) -> Filled:
    """Draws the inside of a mixer's box."""
    most = room.right - room.left - 16 if room.narrow else (room.right - room.left - 16 - 2 * GAP) / 3
    chips = {name: replace(label, most=most) for name, label in labels.items()}
    end = _narrow(canvas, chips, wired, room) if room.narrow else _wide(canvas, chips, wired, room)
    return Filled(end.bottom, (room.left + 18 if room.narrow else end.cx, end.bottom))


def _wide(canvas: Canvas, chips: Mapping[str, Label], wired: Wiring, room: Room) -> Placed:
    """Row by row: convolution, recurrence, its result and states, what leaves the mixer."""
    y = room.top + 2
    above: list[Placed] = []
    if wired.factors:
        above = _row(canvas, [chips[name] for name in wired.factors], room.left, y)
        y += CHIP + DOWN
    if wired.convolution:
        convolution = _row(canvas, [chips[name] for name in wired.convolution], room.left, y, GAP + 14)
        _join(canvas, above, convolution[0])
        _chain(canvas, convolution)
        above = convolution[-1:]
        y += CHIP + DOWN
    start = room.left + room.drift
    if wired.result:
        bottom = _recurrence(canvas, chips, wired, room, y)
        if above:
            canvas.line([(above[0].cx, above[0].bottom), (above[0].cx, y)], ROLE)
        y = bottom + DOWN
        [result] = _row(canvas, [chips[wired.result]], start, y)
        width = sum(chips[name].width + GAP for name in wired.states) - GAP
        left = max(result.right + DOWN, room.right - width)
        states, y = _wrapped(canvas, [chips[name] for name in wired.states], left, room.right, y)
        for placed in (result, *states[:1]):
            canvas.line([(placed.cx, bottom), (placed.cx, placed.y)], ROLE)
        for placed in states[1:]:
            canvas.line([(placed.cx, bottom if placed.y == result.y else placed.y - 10), (placed.cx, placed.y)], ROLE)
        above = [result]
        y += DOWN
    [end] = _row(canvas, [chips[END]], start, y)
    if wired.gate:
        gate = canvas.place(chips[GATE], end.right + DOWN + 10, y)
        canvas.line([(gate.x, gate.cy), (end.right, end.cy)], ROLE)
    _join(canvas, above, end)
    return end


def _recurrence(canvas: Canvas, chips: Mapping[str, Label], wired: Wiring, room: Room, y: float) -> float:
    """The panel of what the recurrence takes. Returns where it ends."""
    inner = room.left + 8, room.right - 8
    top = y + 26
    end = top
    if wired.taken:
        _, end = _wrapped(canvas, [chips[name] for name in wired.taken], *inner, top)
        end += GAP
    if wired.steps:
        _chain(canvas, _row(canvas, [chips[name] for name in wired.steps], inner[0], end, GAP + 14))
        end += CHIP + GAP
    canvas.panel(ROLE, TITLE, room.left, y, room.right - room.left, end - y - GAP + 10)
    return end - GAP + 10


def _narrow(canvas: Canvas, chips: Mapping[str, Label], wired: Wiring, room: Room) -> Placed:
    """One chip a row, on a line where it is made from the one above; what branches off or comes in stands beside it."""
    rail = Rail(canvas, room.left, room.top, ROLE)
    for name in wired.factors:
        rail.joins(chips[name])
    for name in wired.convolution:
        rail.on(chips[name])
    if wired.result:
        top, y = rail.y, rail.y + 26
        rail.reach(top)
        for name in [*wired.taken, *wired.steps]:
            placed = canvas.place(chips[name], room.left + 8, y)
            if name in wired.steps[1:]:
                canvas.line([(room.left + 26, y - 10), (room.left + 26, y)], ROLE)
            y = placed.bottom + 10
        canvas.panel(ROLE, TITLE, room.left, top, room.right - room.left, y - top)
        rail.last, rail.y = y, y + 12
        for name in wired.states:
            rail.leaves(chips[name])
        rail.on(chips[wired.result])
    if wired.gate:
        rail.joins(chips[GATE])
    return rail.on(chips[END])


def _row(canvas: Canvas, labels: list[Label], x: float, y: float, gap: float = GAP) -> list[Placed]:
    out: list[Placed] = []
    for label in labels:
        out.append(canvas.place(label, x, y))
        x = out[-1].right + gap
    return out


def _wrapped(canvas: Canvas, labels: list[Label], left: float, right: float, y: float) -> tuple[list[Placed], float]:
    """Rows of chips between two edges, with the lower end of the last row."""
    out: list[Placed] = []
    x = left
    for label in labels:
        if out and x + label.width > right + 0.5:
            x, y = left, y + CHIP + GAP
        out.append(canvas.place(label, x, y))
        x = out[-1].right + GAP
    return out, y + CHIP


def _chain(canvas: Canvas, row: list[Placed]) -> None:
    for a, b in zip(row, row[1:], strict=False):
        canvas.line([(a.right, a.cy), (b.x, b.cy)], ROLE)


def _join(canvas: Canvas, above: list[Placed], below: Placed) -> None:
    """Lines from chips to the one below them that is made from all of them."""
    for placed in above:
        x = min(max(placed.cx, below.x + 14), below.right - 14)
        middle = below.y - 11
        way = [(placed.cx, placed.bottom), (placed.cx, middle), (x, middle), (x, below.y)]
        canvas.line(way if abs(x - placed.cx) > 1 else [way[0], way[-1]], ROLE)
