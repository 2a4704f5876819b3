"""The numbers that multiply the parts of each block's sum, where they differ from block to block."""

from __future__ import annotations

import torch

from ...measure.edits import factor_value
from ...measure.rounding import digits
from ...measure.run import Run
from ...schema import Picture, Series
from ...wiring.sums import factors

MOST = 6
"""Most factors that are shown."""


def pictures(run: Run) -> list[Picture]:
    """One picture, with a line for each factor that is one number a block, those that differ first; none where each is
    the same on all.
    """
    series: dict[str, list[float | None]] = {}
    for index, anatomy in enumerate(run.text.anatomy):
        for factor in factors(anatomy.tree):
            number = None if factor.kind == "gate" else _number(factor_value(run.text, index, factor))
            if number is not None:
                series.setdefault(factor.name, [None] * len(run.text))[index] = number
    varying = [name for name, numbers in series.items() if _varies(numbers)]
    if not varying:
        return []
    still = [name for name in series if name not in varying]
    shown = {name: series[name] for name in [*varying, *still][:MOST]}
    every = [number for name in varying[:MOST] for number in shown[name] if number is not None]
    names = ", ".join(f"`{name}`" for name in varying[:MOST])
    same = ", ".join(f"`{name}`" for name in shown if name in still)
    rest = f"; the same on all that have it: {same}" if same else ""
    return [
        Picture(
            name="scalars",
            kind="scalars",
            label="What multiplies the parts of a block’s sum",
            quirks=["scaled-residual-adds"],
            blocks=sorted({i for numbers in shown.values() for i, n in enumerate(numbers) if n is not None}),
            axes=["block", "factor"],
            series=[Series(name=name, numbers=numbers) for name, numbers in shown.items()],
            statement=f"From block to block {names} lies between {min(every):g} and {max(every):g}{rest}.",
        )
    ]


def _number(value: float | torch.Tensor) -> float | None:
    """A factor as one number; None where it has several."""
    if isinstance(value, torch.Tensor):
        return digits(float(value.flatten()[0]), 3) if value.numel() == 1 else None
    return digits(float(value), 3)


def _varies(numbers: list[float | None]) -> bool:
    return len({number for number in numbers if number is not None}) > 1
