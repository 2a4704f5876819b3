"""What a recurrent mixer's state keeps over a step, head by head or channel by channel."""

from __future__ import annotations

import torch

from ...measure.rounding import digits
from ...measure.run import Run
from ...schema import Picture, Series
from ..recurrence.steps import Step, steps

MOST = 96
"""Most channels that are shown; of more, some at equal steps are."""


def pictures(run: Run) -> list[Picture]:
    """One picture: the numbers that a step multiplies the state by on the first block where each element has one, on
    two inputs where they follow it. Where the elements of a channel have numbers of their own, its least and largest.
    Channels are sorted by what they keep, heads stand in their order.
    """
    found = next(((i, s) for i, s in enumerate(steps(run)) if s is not None and s.each and s.factors is not None), None)
    if found is None or found[1].factors is None:
        return []
    index, step = found
    parts = _parts(step)
    first = next(iter(parts.values()))
    places = torch.arange(len(first)) if step.alike else first.argsort(descending=True)
    apart = 1 if step.alike else -(-len(places) // MOST)
    series = [Series(name=name, numbers=_numbers(part[places][::apart])) for name, part in parts.items()]
    every = [number for each in series for number in each.numbers if number is not None]
    what = "all of a head’s state" if step.alike else "each channel’s state"
    return [
        Picture(
            name="decay",
            kind="decay",
            label=f"What a step keeps of {what}",
            quirks=["mamba1", "mamba2", "gated-recurrence", "matrix-memory", "fixed-decay"],
            blocks=[index],
            axes=["head" if step.alike else "channel, sorted", "factor of a step"],
            series=series,
            step=apart,
            statement=(
                f"On block {index} a step multiplies {what} by {min(every):g} to {max(every):g}"
                + (", on one token by other numbers than on another." if step.follows else ", whatever the token is.")
            ),
        )
    ]


def _parts(step: Step) -> dict[str, torch.Tensor]:
    """A number for each entry of the state's first axis, by what it is of."""
    assert step.factors is not None
    one, other = (factors.flatten(1) if factors.ndim > 1 else factors[:, None] for factors in step.factors)
    if not step.alike and one.shape[1] > 1:
        return {"largest of a channel": one.amax(1), "least of a channel": one.amin(1)}
    return {"a token": one[:, 0], "another token": other[:, 0]} if step.follows else {"any token": one[:, 0]}


def _numbers(values: torch.Tensor) -> list[float | None]:
    return [digits(float(value), 3) for value in values]
