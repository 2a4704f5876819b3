"""The paper of a picture: shapes in pixels from the top left, each with a class instead of a colour.

matplotlib lays them out; what it writes is then brought down to the shapes, with `class` for how they look. The classes
are those of `site_src/assets/parts/pictures.css`, beside a role's (`r-attention`, …), which sets the colour.
"""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Iterable, Sequence

import matplotlib
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.transforms import Affine2D

Point = tuple[float, float]
Rectangle = tuple[float, float, float, float]

SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "pictures", "path.simplify": False}
INCH = 72
DOT = 0.01
"""Length of the stroke that a round cap makes a dot of."""

SHAPE = re.compile(r'<g id="class ([^"]*)">\s*(?:<path d="([^"]*)"[^>]*/>|<text ([^>]*)>([^<]*)</text>)\s*</g>')
NUMBER = re.compile(r"-?\d+\.\d+")
ANCHOR = re.compile(r"text-anchor: (\w+)")
PLACE = re.compile(r' x="([^"]*)" y="([^"]*)"')
TURNED = re.compile(r'transform="rotate\((-?\d+) ')


class Canvas:
    """A picture of ``width`` times ``height`` pixels."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self._figure = Figure(figsize=(width / INCH, height / INCH), dpi=INCH)
        self._figure.patch.set_visible(False)
        self._down = Affine2D().scale(1, -1).translate(0, height)
        self._shapes = 0

    def rectangles(self, look: str, each: Iterable[Rectangle]) -> None:
        """Filled rectangles: left, top, width, height."""
        corners: list[list[Point]] = [[(x, y), (x + w, y), (x + w, y + h), (x, y + h)] for x, y, w, h in each]
        self._path(look, [[*points, points[0]] for points in corners], closed=True)

    def lines(self, look: str, each: Iterable[Sequence[Point]]) -> None:
        """Lines through points."""
        self._path(look, [list(points) for points in each])

    def dots(self, look: str, each: Iterable[Point]) -> None:
        """Dots, as wide as the look's stroke, whose caps are round."""
        self._path(look, [[(x, y), (x + DOT, y)] for x, y in each])

    def text(self, look: str, at: Point, said: str, anchor: str = "left", *, upright: bool = False) -> None:
        """A word; its ``anchor``, `left`, `center` or `right`, stands at the point. ``upright`` reads upwards."""
        artist = self._figure.text(
            *at,
            said,
            transform=self._down,
            ha=anchor,
            va="baseline",
            rotation=90 if upright else 0,
            rotation_mode="anchor",
            parse_math=False,
        )
        artist.set_gid(f"class {look}")
        self._shapes += 1

    def _path(self, look: str, parts: list[list[Point]], *, closed: bool = False) -> None:
        if not parts:
            return
        points = [point for part in parts for point in part]
        last = Path.CLOSEPOLY if closed else Path.LINETO
        codes = [
            code
            for part in parts
            for code in (Path.MOVETO, *[Path.LINETO] * (len(part) - 2), *[last] * (len(part) > 1))
        ]
        artist = PathPatch(Path(points, codes), transform=self._down)
        artist.set_gid(f"class {look}")
        self._figure.add_artist(artist)
        self._shapes += 1

    def svg(self, alternative: str) -> Markup:
        """The picture as an element of a page.

        Args:
            alternative: what it shows, in words.
        """
        shapes = self._drawn()
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        said = html.escape(alternative)
        return Markup(f'<svg class="drawn" {size} role="img" aria-label="{said}">{shapes}</svg>')

    def _drawn(self) -> str:
        written = io.StringIO()
        with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph", UserWarning)  # words stay text, and the reader's fonts draw them
            FigureCanvasSVG(self._figure).print_svg(written, metadata={"Date": None})
        found = SHAPE.findall(written.getvalue())
        if len(found) != self._shapes:
            raise ValueError(f"{self._shapes} shapes were drawn and {len(found)} found in what matplotlib wrote.")
        return "".join(_path(*shape[:2]) if shape[1] else _text(shape[0], *shape[2:]) for shape in found)


def _path(look: str, outline: str) -> str:
    short = re.sub(r"\s*([MLz])\s*", r"\1", NUMBER.sub(_rounded, outline)).strip()
    return f'<path class="{look}" d="{short}"/>'


def _text(look: str, attributes: str, said: str) -> str:
    anchor = ANCHOR.search(attributes)
    ends = f' text-anchor="{anchor[1]}"' if anchor and anchor[1] != "start" else ""
    place = PLACE.search(attributes)
    assert place is not None
    x, y = (NUMBER.sub(_rounded, number) for number in place.groups())
    turned = TURNED.search(attributes)
    angle = f' transform="rotate({turned[1]} {x} {y})"' if turned and turned[1] != "-0" else ""
    return f'<text class="{look}" x="{x}" y="{y}"{ends}{angle}>{said}</text>'


def _rounded(number: re.Match[str]) -> str:
    return f"{round(float(number[0]), 2):g}"
