"""What an attention chooses by a top-k: some of its projections, or some of the keys."""

from __future__ import annotations

import torch

from ...instruments.extra import LENGTH, attentions, forward, moved, once, token_ids
from ...instruments.projected import projections
from ...instruments.rows import Times
from ...instruments.tap import Rows, Tap, Tapped, hooks
from ...measure.run import Run
from ..answers import tolerance


@once
def routes(run: Run) -> list[bool | None]:
    """For each block whether its attention takes some of as many candidates in a longer prompt as in a short one, and
    returns something else for the least of them; those of a choice among keys grow with the prompt. None where there is
    no attention.
    """
    every = attentions(run)
    short = [_choices(tapped) for tapped in projections(run).taps]
    if not any(short):
        return [None if attention is None else False for attention in every]
    rows, returned = Rows(2), dict[int, torch.Tensor]()
    found = [(index, attention._module) for index, attention in enumerate(every) if attention is not None]
    entering = [(module, rows.align) for _, module in found]
    leaving = [(module, rows.keep(returned, index)) for index, module in found]
    tap = Tap(every, ranked=rows.change(1, Times(-1.0)))
    with hooks(entering, leaving, alike=True), tap:
        forward(run, token_ids(run, LENGTH, rows.total))
    long = [_choices(tapped) for tapped in tap.blocks]
    return [
        None
        if attention is None
        else bool(short[index])
        and max(short[index]) == max(long[index], default=0)
        and moved(returned[index], 1) > tolerance(run)
        for index, attention in enumerate(every)
    ]


def _choices(tapped: Tapped) -> list[int]:
    """Of how many candidates a block's attention takes some, not all."""
    pairs = zip(tapped.candidates, tapped.chosen, strict=True)
    return [candidates for candidates, chosen in pairs if chosen.shape[-1] < candidates]
