"""What a bounded MLP gives while its input grows."""

from __future__ import annotations

from ...measure.rounding import digits
from ...measure.run import Run
from ...schema import Picture, Series
from ..bounded import responses

FACTORS = tuple(10.0**power for power in range(-2, 7))


def pictures(run: Run) -> list[Picture]:
    """One picture of the first block on which a module of an MLP is bounded: the largest number that it takes and that
    it gives, at inputs of growing size.
    """
    found = next(((i, curves) for i, curves in enumerate(responses(run, FACTORS)) if curves), None)
    if found is None:
        return []
    index, curves = found
    name, sizes = next(iter(curves.items()))
    takes, gives = [digits(s.taken, 3) for s in sizes], [digits(s.given, 3) for s in sizes]
    return [
        Picture(
            name="response",
            kind="response",
            label=f"The largest number that {name} takes and gives",
            quirks=["bounded-mlps"],
            blocks=[index],
            axes=["input, multiplied", "largest number"],
            series=[Series(name="taken", numbers=[*takes]), Series(name="given", numbers=[*gives])],
            ticks=[f"{factor:g}" for factor in FACTORS],
            statement=(
                f"While the input of `{name}` on block {index} grows from {takes[0]:g} to {takes[-1]:g}, what it gives "
                f"goes from {gives[0]:g} to {gives[-1]:g}."
            ),
        )
    ]
