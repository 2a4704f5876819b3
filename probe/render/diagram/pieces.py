"""A block's drawing cut where the stream alone leads on, so that blocks side by side can be aligned by role.

Each piece is a narrow drawing of its own. The stream is drawn in the last one only: in the others the page draws it, as
long as the row that the piece stands in.
"""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from probe.render.diagram.block import PHONE, group, stations, tail
from probe.render.diagram.canvas import CHIP, Canvas
from probe.render.diagram.model import Block, Lane

ROWS = {"in": "enters", "mix": "sequence mixing", "feed": "feed-forward", "branch": "branch", "out": "leaves"}
"""The roles that pieces are aligned by, with their names."""
_ROLES = {"attention": "mix", "mixer": "mix", "mlp": "feed", "moe": "feed", "branch": "branch"}


@dataclass(frozen=True)
class Piece:
    """``rows``: the roles it has, keys of `ROWS`; several where sublayers join at one add."""

    rows: list[str]
    svg: Markup


def pieces(block: Block, title: str, stream: str) -> list[Piece]:
    """The drawing of a block, from its input to its output. ``stream``: the role that colours the stream."""
    first = Canvas(PHONE.width, stream)
    bottom = stations(first, PHONE, block.starts, 2, 0) if block.starts else CHIP
    made = [Piece(["in"], first.svg(bottom + 3, f"{title}, input", "piece"))]
    for lanes, mids in zip(block.groups, block.mids, strict=True):
        canvas = Canvas(PHONE.width, stream)
        bottom = stations(canvas, PHONE, mids, group(canvas, PHONE, lanes, 0), 20)
        made.append(Piece(_rows(lanes), canvas.svg(bottom + 3, f"{title}, {_named(lanes)}", "piece")))
    last = Canvas(PHONE.width, stream)
    bottom = tail(last, PHONE, block, 0, 0)
    return [*made, Piece(["out"], last.svg(bottom + 3, f"{title}, output", "piece"))]


def _rows(lanes: list[Lane]) -> list[str]:
    return list(dict.fromkeys(_ROLES[lane.sub.kind] for lane in lanes))


def _named(lanes: list[Lane]) -> str:
    return " and ".join(lane.box.text for lane in lanes)
