"""What a head's scores lose with the distance, where a number a head times the distance is added to them."""

from __future__ import annotations

import math
from functools import partial

from ...measure.rounding import digits
from ...measure.run import Run
from ...schema import Picture, Series
from ..attention.scores import fits
from ..base import some

MOST = 4
"""Most blocks of differing slopes that are shown."""

SAME = 1e-3
"""Largest difference of two slopes that count as the same, relative to the larger: a fit's error, not a digit's."""


def pictures(run: Run) -> list[Picture]:
    """One picture, with a series for the blocks of the same slopes."""
    groups: list[tuple[tuple[float, ...], list[int]]] = []
    for index, fit in enumerate(fits(run)):
        if fit is not None and fit.kind == "slope":
            blocks = next((blocks for slopes, blocks in groups if _same(slopes, fit.slopes)), None)
            if blocks is None:
                groups.append((fit.slopes, [index]))
            else:
                blocks.append(index)
    if not groups:
        return []
    shown = [([digits(abs(slope), 3) for slope in slopes], blocks) for slopes, blocks in groups[:MOST]]
    every, total = [slope for slopes, _ in shown for slope in slopes], len(run.text)
    return [
        Picture(
            name="slopes",
            kind="slopes",
            label="What a head’s scores fall by a position",
            quirks=["alibi"],
            blocks=sorted(index for _, blocks in shown for index in blocks),
            axes=["head", "fall of the scores a position"],
            series=[Series(name=some(blocks, total), numbers=slopes) for slopes, blocks in shown],
            statement=(
                f"Over the heads the scores fall by {max(every):g} down to {min(every):g} a position of distance."
            ),
        )
    ]


def _same(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return len(one) == len(other) and all(map(partial(math.isclose, rel_tol=SAME), one, other))
