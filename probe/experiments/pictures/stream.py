"""How the stream grows over the blocks, beside what each sublayer adds."""

from __future__ import annotations

import torch

from ...measure.rounding import digits
from ...measure.run import Run
from ...schema import Picture, Series
from ...standard.stack import Stack


def pictures(run: Run) -> list[Picture]:
    """The growth of the text model's stream on the prompt."""
    return of_stack(run.text)


def of_stack(stack: Stack) -> list[Picture]:
    """One picture: the median over positions of the length of the stream after each block, and of each contribution's
    before factors of the block; none where no block's stream was read.
    """
    blocks = range(len(stack))
    leaving = [_median(stack.get(index, "", "layer_output")) for index in blocks]
    known = [number for number in leaving if number is not None]
    if not known:
        return []
    series = {"layer_output": leaving, **_contributions(stack)}
    return [
        Picture(
            name="growth",
            kind="growth",
            label="Length of the stream after each block, and of what is added",
            blocks=list(blocks),
            axes=["block", "median length over positions"],
            series=[Series(name=name, numbers=numbers) for name, numbers in series.items()],
            statement=(
                f"From the first block to the last the stream's length, its median over the positions, goes from "
                f"{known[0]:g} to {known[-1]:g}, with {max(known):g} at most."
            ),
        )
    ]


def _contributions(stack: Stack) -> dict[str, list[float | None]]:
    """A series for each contribution, by its value's name, with its host where several have that name."""
    if not stack.anatomy:
        return {}
    names = {(one.host, one.name) for block in stack.contributions for one in block}
    series: dict[str, list[float | None]] = {}
    for index, block in enumerate(stack.contributions):
        for one in block:
            alone = sum(name == one.name for _, name in names) == 1
            label = one.name if alone or not one.host else f"{one.host}.{one.name}"
            series.setdefault(label, [None] * len(stack))[index] = _median(stack.get(index, one.host, one.name))
    return series


def _median(value: torch.Tensor | None) -> float | None:
    return None if value is None else digits(float(value.norm(dim=-1).median()), 3)
