"""A step of a recurrent mixer, taken from a changed state.

A step is linear in the state it takes. So one cached step with the state changed at random shows what multiplies it:
a number for each element, one for each head, or a matrix that mixes elements; and whether that depends on the input.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import Module
from transformers import DynamicCache

from ..measure.run import Run
from .extra import SHORT, decoder, forward, noisy, once, token_ids
from .rows import Change, Rows, hooks

CACHES = ("cache", "past_key_values", "cache_params", "state")
"""Names under which models take and return what they keep between steps."""

CLOSE = 1e-3
"""Relative difference below which two factors on a state count as one."""


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
    """

    shape: tuple[int, ...]
    convolves: bool
    tried: bool = False
    each: bool = False
    alike: bool = False
    follows: bool = False
    least: float = 0.0
    largest: float = 0.0


@once
def steps(run: Run) -> list[Step | None]:
    """For each block how its mixer's state is carried on; None where it has no mixer, or none whose state is cached."""
    mixes = [any(term.kind == "mixer" for term in anatomy.terms) for anatomy in run.text.anatomy]
    if not any(mixes):
        return [None] * len(mixes)
    takes = inspect.signature(decoder(run).forward).parameters
    name = next((name for name in CACHES if name in takes), None)
    rows = Rows(5)
    cache = filled(run, name, token_ids(run, SHORT, rows.total))
    kept = [state_kept(run, cache, index) if mixes[index] else None for index in range(len(mixes))]
    changes = {}
    for index, held in enumerate(kept):
        if held is not None and held[0] is not None and not isinstance(cache, list):
            changes[index] = _changes(held[0])
            for row, change in ((1, 0), (2, 1), (4, 0)):
                held[0][row] += changes[index][change]
    entering: list[tuple[Module, Change]] = []
    for envoy in run.text.envoys:
        entering += [(envoy._module, each) for each in (rows.align, rows.change(3, noisy), rows.change(4, noisy))]
    ids = token_ids(run, 1, rows.total, seed=2)
    mask = torch.ones(rows.total, SHORT + 1, dtype=torch.long, device=ids.device)
    with hooks(entering):
        given = {} if name is None else {name: cache}
        if "position_ids" in takes:
            given["position_ids"] = torch.full_like(ids, SHORT)
        forward(run, ids, attention_mask=mask, use_cache=True, **given)
    found: list[Step | None] = []
    for index, held in enumerate(kept):
        after = None if held is None else state_kept(run, cache, index)
        found.append(None if held is None or after is None else _step(after, changes.get(index)))
    return found


def filled(run: Run, name: str | None, ids: torch.Tensor) -> Any:
    """What a model keeps after a prompt; where it returns nothing, a cache that it was given."""
    out = forward(run, ids, use_cache=True)
    cache = None if name is None else getattr(out, name, None)
    if cache is None and name is not None:
        forward(run, ids)  # what modules themselves have kept is forgotten
        cache = DynamicCache(config=run.model.text_config)
        forward(run, ids, use_cache=True, **{name: cache})
    return cache


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


def _step(after: Kept, changes: torch.Tensor | None) -> Step:
    state, convolves = after
    if state is None:
        return Step((), convolves)
    if changes is None:
        return Step(tuple(state.shape[1:]), convolves)
    state, changes = state.float(), changes.float()
    one, two = (state[1] - state[0]) / changes[0], (state[2] - state[0]) / changes[1]
    other = (state[4] - state[3]) / changes[0]
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
    )
