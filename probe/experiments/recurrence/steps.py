"""A step of a recurrent mixer, taken from a changed state.

A step is linear in the state it takes. So one cached step with the state changed at random shows what multiplies it:
a number for each element, one for each head, or a matrix that mixes elements; and whether that depends on the input.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ...instruments.extra import SHORT, once, token_ids
from ...instruments.rows import Rows
from ...measure.run import Run
from .pieces import kept_tensors, pieces
from .stepping import filled, step

CLOSE = 1e-3
"""Relative difference below which two factors on a state count as one."""

LARGE = 1e4
"""How many times as large the change of a state is that is kept beside a logarithm: a step may take it down by as much,
and what is left must not be lost in rounding.
"""


@dataclass(frozen=True)
class Step:
    """How one step carries a mixer's state on.

    Attributes:
        shape: of the state of one row; empty where the mixer keeps none but the inputs of its convolution.
        convolves: whether the inputs of a convolution are kept beside it.
        tried: whether a step was taken from a changed state; what follows is known only then.
        each: whether every element is multiplied by a number, whatever the others are.
        alike: whether that number is one for each entry of the state's first axis, its heads.
        follows: whether the numbers depend on the step's input.
        least, largest: of the numbers.
        factors: the numbers, of the state's shape, on one input and on another; None where no step was tried.
        together: how many kept tensors stand for the state; of more than one, one is a logarithm (:mod:`.pieces`).
    """

    shape: tuple[int, ...]
    convolves: bool
    tried: bool = False
    each: bool = False
    alike: bool = False
    follows: bool = False
    least: float = 0.0
    largest: float = 0.0
    together: int = 1
    factors: tuple[torch.Tensor, torch.Tensor] | None = field(default=None, compare=False, repr=False)


@once
def steps(run: Run) -> list[Step | None]:
    """For each block how its mixer's state is carried on; None where it has no mixer, or none whose state is cached."""
    mixes = [any(term.kind == "mixer" for term in anatomy.terms) for anatomy in run.text.anatomy]
    if not any(mixes):
        return [None] * len(mixes)
    parts = pieces(run)
    rows = Rows(5)
    cache = filled(run, token_ids(run, SHORT, rows.total))

    def held(index: int) -> Kept | None:
        part = parts[index]
        if part is not None:
            return kept_tensors(run, cache, index)[part.state], False
        return state_kept(run, cache, index) if mixes[index] else None

    kept = [held(index) for index in range(len(mixes))]
    changes = {}
    for index, before in enumerate(kept):
        if before is not None and before[0] is not None and (parts[index] or not isinstance(cache, list)):
            changes[index] = _changes(before[0]) * (1.0 if parts[index] is None else LARGE)
            for row, change in ((1, 0), (2, 1), (4, 0)):
                before[0][row] += changes[index][change]
    logarithms = _logarithms(run, cache)
    _, cache = step(run, cache, rows, (3, 4))
    grown = {index: after - logarithms[index] for index, after in _logarithms(run, cache).items()}
    found: list[Step | None] = []
    for index, before in enumerate(kept):
        after = None if before is None else held(index)
        if after is None:
            found.append(None)
            continue
        part = parts[index]
        told = _step(after, changes.get(index), grown.get(index))
        found.append(told if part is None else replace(told, together=part.together))
    return found


def _logarithms(run: Run, cache: Any) -> dict[int, torch.Tensor]:
    """The logarithms of the numbers that the blocks' states are to be multiplied by, where one is kept."""
    return {
        index: kept_tensors(run, cache, index)[part.logarithm].detach().float().clone()
        for index, part in enumerate(pieces(run))
        if part is not None
    }


Kept = tuple[torch.Tensor | None, bool]
"""A block's recurrent state, and whether the inputs of a convolution are kept too."""


def state_kept(run: Run, cache: Any, index: int) -> Kept | None:
    """What is kept of a block's mixer: in the cache's layer, in another list or mapping of the cache, in a list of
    tensors whose last axis is the blocks, or by the mixer's own modules.
    """
    layers = getattr(cache, "layers", None)
    if layers is not None and index < len(layers) and hasattr(layers[index], "recurrent_states"):
        layer = layers[index]
        states, inputs = _first(layer.recurrent_states.values()), _first(layer.conv_states.values())
        if states is not None or inputs is not None:
            return states, inputs is not None
    if isinstance(cache, list):
        return _first(state[..., index] for state in cache[::-1] if state.shape[-1] == len(run.text)), False
    for held in vars(cache).values() if hasattr(cache, "__dict__") else ():
        if isinstance(held, dict) and index in held or isinstance(held, list) and index < len(held):
            inner = held[index]
            states = _first(inner if isinstance(inner, (tuple, list)) else [inner])
            if states is not None:
                return states, False
    return _kept_by_modules(run, index)


def _kept_by_modules(run: Run, index: int) -> Kept | None:
    """Tensors that a mixer's modules keep as plain attributes, a row first."""
    block = run.text.envoys[index]._module
    paths = [host for term in run.text.anatomy[index].terms if term.kind == "mixer" for host in term.hosts]
    inner = [module for path in paths for module in block.get_submodule(path).modules()]
    held = {name: value for module in inner for name, value in vars(module).items() if isinstance(value, torch.Tensor)}
    states = [value for name, value in held.items() if "conv" not in name]
    return (_first(states), len(states) < len(held)) if held else None


def _first(held: Iterable[Any]) -> torch.Tensor | None:
    return next((item for item in held if isinstance(item, torch.Tensor)), None)


def _changes(state: torch.Tensor) -> torch.Tensor:
    """Two changes of one row of a state, every number of them far from zero."""
    generator = torch.Generator().manual_seed(state[0].numel())
    size = (2, *state.shape[1:])
    sizes = 1 + torch.rand(size, generator=generator)
    signs = torch.randint(0, 2, size, generator=generator) * 2 - 1
    return (sizes * signs * float(state[0].float().std().clamp_min(1e-3))).to(state.device, state.dtype)


def _step(after: Kept, changes: torch.Tensor | None, grown: torch.Tensor | None) -> Step:
    """How a step carries a state on, from the state after it.

    Args:
        changes: what was added to rows 1 and 2 before it, and the first of it to row 4.
        grown: by how much the logarithm of what the state is to be multiplied by has grown, where one is kept.
    """
    state, convolves = after
    if state is None:
        return Step((), convolves)
    if changes is None:
        return Step(tuple(state.shape[1:]), convolves)
    state, changes = state.float(), changes.float()
    one, two = (state[1] - state[0]) / changes[0], (state[2] - state[0]) / changes[1]
    other = (state[4] - state[3]) / changes[0]
    if grown is not None:
        by = grown.exp().reshape(*grown.shape, *[1] * (state.ndim - grown.ndim))
        one, two, other = one * by[0], two * by[0], other * by[3]
    scale = float(one.abs().max().clamp_min(1e-30))
    inner = tuple(range(1, one.ndim))
    alike = float((one.amax(inner) - one.amin(inner)).max()) < CLOSE * scale if inner else False
    return Step(
        tuple(state.shape[1:]),
        convolves,
        tried=True,
        each=float((one - two).abs().max()) < CLOSE * scale,
        alike=alike,
        follows=float((other - one).abs().max()) > CLOSE * scale,
        least=float(one.min()),
        largest=float(one.max()),
        factors=(one.cpu(), other.cpu()),
    )
