"""Drawing primitives of the block diagram: chips, norms, boxes, adds and rounded lines, written as SVG.

Text is set in the site's own monospaced face, whose advance is 0.6 em, so widths are known here. Colours and strokes
are the stylesheet's; everything a person can point at is a link to its card. A chip is as wide as the widest of its
names, of which the page's switch shows one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from probe.render.naming import shortened

FONT = 11.5
SMALL = 10.0
"""Of a name of two lines."""
CHIP = 28.0
PAD = 11.0
SIDE = 8.0
"""From a chip's edge to a small name."""
Point = tuple[float, float]


def n(value: float) -> str:
    """A coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def width_of(text: str, font: float = FONT) -> float:
    return len(text) * font * 0.6


@dataclass(frozen=True)
class Label:
    """What becomes a chip or a norm.

    Attributes:
        card: its card's id.
        state: ``eager``, ``absent`` or empty.
        names: other names that a switch shows in the text's place, by its choices: two lines each.
        most: the width that they may make the label take, in pixels.
    """

    text: str
    card: str
    role: str
    form: str = "chip"
    state: str = ""
    hint: str = ""
    names: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    most: float = 1000.0

    @property
    def width(self) -> float:
        other = max((width_of(line, SMALL) for lines in self.names.values() for line in lines), default=0.0)
        return max(width_of(self.text) + 2 * PAD, min(other + 2 * SIDE, self.most))

    def written(self, lines: tuple[str, str]) -> str:
        """Two lines as far as the label has room for them, which leaves out their beginnings."""
        room = int((self.width - 2 * SIDE) / (SMALL * 0.6) + 1e-6)
        return "|".join(shortened(line, room) for line in lines).rstrip("|")


@dataclass(frozen=True)
class Placed:
    """A label at its place."""

    label: Label
    x: float
    y: float

    @property
    def right(self) -> float:
        return self.x + self.label.width

    @property
    def cx(self) -> float:
        return self.x + self.label.width / 2

    @property
    def cy(self) -> float:
        return self.y + CHIP / 2

    @property
    def bottom(self) -> float:
        return self.y + CHIP


class Canvas:
    """Collects a drawing in layers: boxes below panels below lines below labels."""

    def __init__(self, width: float, stream: str) -> None:
        self.width = width
        self._stream = stream
        self._boxes: list[str] = []
        self._back: list[str] = []
        self._lines: list[str] = []
        self._strokes: dict[str, list[str]] = {}
        self._heads: dict[str, list[str]] = {}
        self._marks: list[str] = []
        self._front: list[str] = []

    def line(self, points: Sequence[Point], role: str = "flow", arrow: bool = True, halo: bool = False) -> None:
        """A line through ``points`` with rounded corners, and a head at its end."""
        path = _rounded(points)
        if halo:
            self._draw()
            self._lines.append(f'<path class="halo" d="{path}"/>')
        self._strokes.setdefault(role, []).append(path)
        if arrow:
            self._heads.setdefault(role, []).append(_head(points[-2], points[-1]))

    def trunk(self, x: float, top: float, bottom: float) -> None:
        """The residual stream."""
        self._marks.append(f'<path class="trunk r-{self._stream}" d="M{n(x)} {n(top)}V{n(bottom)}"/>')

    def _draw(self) -> None:
        """Draws the lines so far, those of one role as one path, and their heads likewise."""
        for look, drawn in (("line", self._strokes), ("head", self._heads)):
            self._lines += [f'<path class="{look} r-{role}" d="{"".join(paths)}"/>' for role, paths in drawn.items()]
            drawn.clear()

    def place(self, label: Label, x: float, y: float) -> Placed:
        """Draws ``label`` with its upper left corner at (x, y)."""
        placed = Placed(label, x, y)
        w = label.width
        radius = CHIP / 2 if label.form == "chip" else 3
        body = f'<rect x="{n(x)}" y="{n(y)}" width="{n(w)}" height="{n(CHIP)}" rx="{n(radius)}"/>'
        if label.form == "norm":
            body += f'<path d="M{n(x + 4)} {n(y + 1)}v{n(CHIP - 2)}M{n(x + w - 4)} {n(y + 1)}v{n(CHIP - 2)}"/>'
        middle = f'x="{n(x + w / 2)}" text-anchor="middle"'
        body += f'<text {middle} y="{n(y + CHIP / 2 + 4)}">{_named(label.text)}</text>'
        self._front.append(self._link(label, body))
        return placed

    def box(self, label: Label, x: float, y: float, w: float, h: float, subtitle: str, note: str) -> None:
        """A module: a titled box. ``subtitle`` follows the title, ``note`` stands at the right."""
        title_width = max(width_of(text, 12.5) for text in (label.text, *(lines[0] for lines in label.names.values())))
        body = f'<rect x="{n(x)}" y="{n(y)}" width="{n(w)}" height="{n(h)}" rx="9"/>'
        body += f'<text class="title" x="{n(x + 14)}" y="{n(y + 23)}">{escape(label.text)}</text>'
        if title_width + width_of(subtitle, 10.5) + width_of(note, 10.5) + 60 > w:
            if title_width + width_of(note, 10.5) + 40 <= w:
                subtitle = ""
            else:
                note = ""
        if subtitle:
            body += f'<text class="sub" x="{n(x + 24 + title_width)}" y="{n(y + 23)}">{escape(subtitle)}</text>'
        if note:
            body += f'<text class="note" x="{n(x + w - 14)}" y="{n(y + 23)}" text-anchor="end">{escape(note)}</text>'
        self._boxes.append(self._link(label, body))

    def panel(self, role: str, title: str, x: float, y: float, w: float, h: float) -> None:
        """A titled division of a box; it has no card of its own."""
        self._back.append(
            f'<g class="panel r-{role}"><rect x="{n(x)}" y="{n(y)}" width="{n(w)}" height="{n(h)}" rx="6"/>'
            f'<text x="{n(x + 10)}" y="{n(y + 17)}">{escape(title)}</text></g>'
        )

    def caption(self, text: str, x: float, y: float) -> None:
        self._marks.append(f'<text class="caption" x="{n(x)}" y="{n(y)}" text-anchor="middle">{escape(text)}</text>')

    def node(self, label: Label, x: float, y: float) -> None:
        """⊕ or ⊗ on the stream, centred at (x, y)."""
        cross = "M-5 0H5M0 -5V5" if label.form == "add" else "M-3.6 -3.6L3.6 3.6M-3.6 3.6L3.6 -3.6"
        body = f'<g transform="translate({n(x)} {n(y)})"><circle class="target" r="14"/><circle r="10.5"/>'
        self._front.append(self._link(label, f'{body}<path d="{cross}"/></g>'))

    def dot(self, x: float, y: float) -> None:
        self._marks.append(f'<circle class="dot r-{self._stream}" cx="{n(x)}" cy="{n(y)}" r="3.5"/>')

    def svg(self, height: float, title: str, name: str) -> Markup:
        """The drawing, one unit a CSS pixel."""
        self._draw()
        layers = "".join([*self._boxes, *self._back, *self._lines, *self._marks, *self._front])
        size = f'viewBox="0 0 {n(self.width)} {n(height)}" width="{n(self.width)}" height="{n(height)}"'
        return Markup(f'<svg class="{name}" {size} role="group" aria-label="{escape(title)}">{layers}</svg>')

    def _link(self, label: Label, body: str) -> str:
        """A part: a link to its card.

        It has ``xlink:href``, since the theme assigns to ``href`` wherever it finds one, which SVG refuses.
        """
        state = f" is-{label.state}" if label.state else ""
        role = self._stream if label.role == "stream" else label.role
        spoken = ", ".join(filter(None, [label.text, label.hint]))
        names = "".join(f' data-{key}="{escape(label.written(lines))}"' for key, lines in label.names.items())
        return (
            f'<a class="part {label.form} r-{role}{state}" tabindex="0" xlink:href="#{escape(label.card)}" '
            f'aria-label="{escape(spoken)}"{names}>{body}</a>'
        )


def _named(text: str) -> str:
    """A long value's name with its common prefix set lighter, so that what tells it apart stands out."""
    for prefix in ("attention_",):
        if text.startswith(prefix) and text not in ("attention_output", "attention_norm_output"):
            return f'<tspan class="dim">{prefix}</tspan>{escape(text[len(prefix) :])}'
    return str(escape(text))


def _rounded(points: Sequence[Point], radius: float = 9) -> str:
    """A path with rounded corners, each step told from the end of the last: like lines are like text, and pack well."""
    at = _tenths(points[0])
    parts = [f"M{_n(at[0])}{_n(at[1], True)}"]
    for before, here, after in zip(points, points[1:], points[2:], strict=False):
        start, corner, end = (_tenths(p) for p in (_towards(here, before, radius), here, _towards(here, after, radius)))
        turn = f"q{_step(start, corner)}{_step(start, end, True)}"
        parts.append(_to(at, start) + turn)
        at = end
    return "".join([*parts, _to(at, _tenths(points[-1]))])


def _tenths(point: Point) -> tuple[int, int]:
    return round(point[0] * 10), round(point[1] * 10)


def _to(at: tuple[int, int], end: tuple[int, int]) -> str:
    """A straight step of a path, in tenths."""
    if at == end:
        return ""
    if at[1] == end[1]:
        return f"h{_n(end[0] - at[0])}"
    return f"v{_n(end[1] - at[1])}" if at[0] == end[0] else f"l{_step(at, end)}"


def _step(at: tuple[int, int], end: tuple[int, int], more: bool = False) -> str:
    return _n(end[0] - at[0], more) + _n(end[1] - at[1], True)


def _n(tenths: int, more: bool = False) -> str:
    """A number of tenths in a path; ``more``: behind another, which a minus parts from it as well as a space."""
    return (" " if more and tenths >= 0 else "") + n(tenths / 10)


def _towards(origin: Point, target: Point, distance: float) -> Point:
    dx, dy = target[0] - origin[0], target[1] - origin[1]
    length = (dx * dx + dy * dy) ** 0.5 or 1
    share = min(distance, length / 2) / length
    return origin[0] + dx * share, origin[1] + dy * share


def _head(before: Point, tip: Point) -> str:
    """An arrow's head."""
    bx, by = _towards(tip, before, 6)
    px, py = -(tip[1] - by) * 0.55, (tip[0] - bx) * 0.55
    at, left, right = _tenths(tip), (bx + px - tip[0], by + py - tip[1]), (-2 * px, -2 * py)
    return f"M{_n(at[0])}{_n(at[1], True)}l{_step((0, 0), _tenths(left))}l{_step((0, 0), _tenths(right))}z"
