"""A column of chips along a line: on it stands what is made from what is above, beside it what joins or leaves it."""

from __future__ import annotations

from probe.render.diagram.canvas import CHIP, Canvas, Label, Placed

INDENT = 30.0
ABOVE, BESIDE = 12.0, 10.0
"""Room before a chip on the line, and beside it."""


class Rail:
    """A line that runs down from the first chip on it.

    Args:
        left: edge of the chips on the line.
        y: where the first one stands.
    """

    def __init__(self, canvas: Canvas, left: float, y: float, role: str) -> None:
        self.canvas, self.left, self.y, self.role = canvas, left, y, role
        self.x = left + 18
        self.last: float | None = None
        """Where the line leaves what stands on it last; None where nothing does yet."""

    def on(self, label: Label) -> Placed:
        """A chip on the line."""
        self.reach(self.y)
        placed = self.canvas.place(label, self.left, self.y)
        self.last, self.y = placed.bottom, placed.bottom + ABOVE
        return placed

    def reach(self, y: float) -> None:
        """Draws the line down to ``y``."""
        if self.last is not None:
            self.canvas.line([(self.x, self.last), (self.x, y)], self.role)

    def joins(self, label: Label) -> None:
        """A chip beside the line, which goes into what comes next on it."""
        if self.last is None:
            self.last = self.y + CHIP / 2
        self._beside(label, inwards=True)

    def leaves(self, label: Label) -> None:
        """A chip beside the line, which is made from what the line comes from."""
        self._beside(label, inwards=False)

    def _beside(self, label: Label, *, inwards: bool) -> None:
        placed = self.canvas.place(label, self.left + INDENT, self.y)
        ends = [(self.x, placed.cy), (placed.x, placed.cy)]
        self.canvas.line(ends[::-1] if inwards else ends, self.role)
        self.y = placed.bottom + BESIDE
