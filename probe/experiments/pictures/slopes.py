"""What a head's scores lose with the distance, where a number a head times the distance is added to them."""

from __future__ import annotations

from ...measure.rounding import digits
from ...measure.run import Run
from ...schema import Picture, Series
from ..base import some
from ..scores import fits

MOST = 4
"""Most blocks of differing slopes that are shown."""


def pictures(run: Run) -> list[Picture]:
    """One picture, with a series for the blocks of the same slopes."""
    groups: dict[tuple[float, ...], list[int]] = {}
    for index, fit in enumerate(fits(run)):
        if fit is not None and fit.kind == "slope":
            groups.setdefault(tuple(digits(abs(slope), 3) for slope in fit.slopes), []).append(index)
    if not groups:
        return []
    shown, total = dict(list(groups.items())[:MOST]), len(run.text)
    every = [slope for slopes in shown for slope in slopes]
    return [
        Picture(
            name="slopes",
            kind="slopes",
            label="What a head’s scores fall by a position",
            quirks=["alibi"],
            blocks=sorted(index for blocks in shown.values() for index in blocks),
            axes=["head", "fall of the scores a position"],
            series=[Series(name=some(blocks, total), numbers=list(slopes)) for slopes, blocks in shown.items()],
            statement=(
                f"Over the heads the scores fall by {max(every):g} down to {min(every):g} a position of distance."
            ),
        )
    ]
