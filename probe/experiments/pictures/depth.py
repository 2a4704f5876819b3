"""What happens by depth: the factor of each block's scores, and what each pass of a looped block does to the end."""

from __future__ import annotations

from ...measure.rounding import digits
from ...measure.run import Run
from ...schema import Picture, Series
from ..attention.depth import score_factors
from ..stream.looping import calls, effects

MOST = 16
"""Most passes that are shown, each of which takes a row of a forward."""

SAME = 1e-3
"""Relative difference of two factors below which they count as one: a fit's error."""


def of_scores(run: Run) -> list[Picture]:
    """One picture, where the scores of blocks are multiplied by different numbers beside the heads' width."""
    factors = score_factors(run)
    sizes = [abs(factor) for factor in factors.values()]
    if not sizes or max(sizes) - min(sizes) < SAME * max(sizes):
        return []
    numbers = [digits(factors[index], 3) if index in factors else None for index in range(len(run.text))]
    known = [number for number in numbers if number is not None]
    return [
        Picture(
            name="score-factors",
            kind="scales",
            label="What each block’s scores are multiplied by, times the root of its heads’ width",
            quirks=["depth-scaled-scores"],
            blocks=sorted(factors),
            axes=["block", "factor · √width"],
            series=[Series(name="factor of the scores", numbers=numbers)],
            statement=(
                f"From the first block to the last the factor of the scores, times the root of the heads' width, goes "
                f"from {known[0]:g} to {known[-1]:g}."
            ),
        )
    ]


def of_passes(run: Run) -> list[Picture]:
    """One picture, where a forward runs a block several times: by how much noise on each pass moves the end."""
    order = calls(run)
    looped = next((index for index in range(len(run.text)) if order.count(index) > 1), None)
    if looped is None:
        return []
    passes = min(order.count(looped), MOST)
    moved = effects(run, looped, {str(at): {at} for at in range(passes)})
    numbers: list[float | None] = [digits(effect, 2) if effect > SAME else 0.0 for effect in moved.values()]
    shown = [f"{number:g}" for number in numbers]
    return [
        Picture(
            name="passes",
            kind="passes",
            label="How far noise on one pass of a block moves the final stream",
            quirks=["looped-blocks"],
            blocks=[looped],
            axes=["pass", "movement, relative to the stream"],
            series=[Series(name=f"block {looped}", numbers=numbers)],
            statement=f"Noise on what block {looped} gives on one of its passes, from the first: {', '.join(shown)}.",
        )
    ]
