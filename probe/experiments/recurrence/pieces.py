"""A recurrent state kept in several tensors, one of which holds the logarithm of a number that the others are to be
multiplied by: so they neither overflow nor vanish however long a prompt is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from ...instruments.extra import SHORT, moved, once, token_ids
from ...instruments.rows import Rows
from ...measure.edits import noise_like
from ...measure.run import Run
from ..answers import tolerance
from .stepping import filled, step

SHIFT = 0.5
"""What is taken off a tensor that may be a logarithm; the others are multiplied by its exponential."""


@dataclass(frozen=True)
class Pieces:
    """What a mixer keeps for a step, by its place among the kept tensors.

    Attributes:
        state: the tensor of most axes that is to be multiplied.
        logarithm: the tensor whose exponential multiplies it.
        together: how many tensors make up the state, this one included.
    """

    state: int
    logarithm: int
    together: int


def kept_tensors(run: Run, cache: Any, index: int) -> list[torch.Tensor]:
    """The tensors that are kept side by side for a block's mixer, a row first; empty where it keeps one, or where a
    layer of the cache holds them.
    """
    if isinstance(cache, list):
        return [state[..., index] for state in cache if state.shape[-1] == len(run.text)]
    for held in vars(cache).values() if hasattr(cache, "__dict__") else ():
        inner = held.get(index) if isinstance(held, dict) else None
        if isinstance(inner, (tuple, list)) and len(inner) > 1:
            return [tensor for tensor in inner if isinstance(tensor, torch.Tensor)]
    return []


@once
def pieces(run: Run) -> list[Pieces | None]:
    """For each block which of its mixer's tensors stand for one state; None where none do.

    A step with noise in one kept tensor a row shows which of them it carries on. A tensor that the block's output
    follows is the logarithm if that output stays with a number taken off it and the others, as far as they are carried
    on, multiplied by that number's exponential.
    """
    total = len(run.text)
    first = filled(run, token_ids(run, SHORT))
    most = max((len(kept_tensors(run, first, index)) for index in range(total)), default=0)
    if most < 2:
        return [None] * total
    rows = Rows(1 + most)
    cache = filled(run, token_ids(run, SHORT, rows.total))
    for index in range(total):
        for place, held in enumerate(kept_tensors(run, cache, index)):
            held[place + 1] += noise_like(held[0]).to(held.dtype) * held[0].std()
    noised, cache = step(run, cache, rows)
    carried = [_carried(kept_tensors(run, cache, index)) for index in range(total)]
    cache = filled(run, token_ids(run, SHORT, rows.total))
    for index, places in enumerate(carried):
        tensors = kept_tensors(run, cache, index)
        for row, logarithm in enumerate(tensors, 1):
            logarithm[row] -= SHIFT
            for place in places:
                if place + 1 != row:
                    tensors[place][row] *= math.exp(SHIFT)
    shifted, cache = step(run, cache, rows)
    found: list[Pieces | None] = []
    for index, places in enumerate(carried):
        tensors = kept_tensors(run, cache, index)
        same = [
            place
            for place in range(len(tensors))
            if moved(shifted[index], place + 1) < tolerance(run) < moved(noised[index], place + 1)
        ]
        others = [place for place in places if place not in same]
        one = len(same) == 1 and others
        found.append(Pieces(max(others, key=lambda at: tensors[at].ndim), same[0], len(others) + 1) if one else None)
    return found


def _carried(tensors: Iterable[torch.Tensor]) -> list[int]:
    """The places of the tensors whose own noise is in them after a step."""
    return [place for place, held in enumerate(tensors) if not torch.equal(held[place + 1], held[0])]
