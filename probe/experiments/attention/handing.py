"""What blocks hand to one another beside the stream: a forward in which each block in turn takes noise and every other
one the plain stream.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import torch

from ...instruments.extra import BRIEF, LENGTH, attentions, forward, moved, moves, noisy, once, token_ids
from ...instruments.perturbed import Batch, alone, perturbed
from ...instruments.projected import projections
from ...instruments.rows import Change, Rows, hooks, removed
from ...instruments.tap import MASKED, Tap
from ...measure.run import Run
from ...wiring.operands import first_given
from ..answers import tolerance
from ..stream.entrance import mixes_rows

Pair = tuple[int, int]
"""The block that took noise, and another one that took none."""


@dataclass
class Handed:
    """What followed, in each block, from noise in the stream that another one takes.

    Attributes:
        moves: by pair, the largest change of what the second block gives, relative to its size; only where it is more
            than rounding.
        support: the pairs where what a query of the second block may attend to changed.
        ways: by pair, the arguments of the second block that changed, apart from its stream.
        own: the blocks where noise in their own stream changed what a query may attend to.
        mixed: whether rows without noise differ, so that nothing else was looked at.
    """

    moves: dict[Pair, float] = field(default_factory=dict)
    support: set[Pair] = field(default_factory=set)
    ways: dict[Pair, set[str]] = field(default_factory=dict)
    own: set[int] = field(default_factory=set)
    mixed: bool = False


@once
def handed(run: Run) -> Handed:
    """What follows from noise in the stream of one block, where every other one takes row 0's stream as it is: on a
    short prompt, or on one longer than a top-k takes where an attention has one. Where rows without noise differ, as
    rows do that an expert's room is shared among, there is a forward for each block instead.
    """
    found = _noised(run) if _length(run) == BRIEF else alone(run, _rows, _noise_each, _length(run))
    return _one_by_one(run) if found.mixed or any(mixes_rows(run)) else found


@contextmanager
def _noise_each(run: Run, batch: Batch, rows: Rows) -> Iterator[Handed]:
    """A row for each block, in which that block takes noise on top of row 0's stream, and a last one without noise."""
    total = len(run.text)
    given: dict[Any, torch.Tensor] = {}
    found = Handed()
    blocks = [envoy._module for envoy in run.text.envoys]
    entering = [(block, rows.change(index + 1, noisy)) for index, block in enumerate(blocks)]
    leaving = [(block, rows.keep(given, index)) for index, block in enumerate(blocks)]
    with ExitStack() as stack:
        stack.enter_context(hooks(entering, leaving))
        for index, block in enumerate(blocks):
            look = partial(_look, found.ways, rows, index)
            stack.enter_context(removed(block.register_forward_pre_hook(look, with_kwargs=True)))
        yield found
    found.mixed = any(moved(out, total + 1) > tolerance(run) for out in given.values())
    if found.mixed:
        return
    seen = {
        index: rows.only(tapped.softmax)
        for index, (tapped, attention) in enumerate(zip(batch.inside, attentions(run), strict=True))
        if attention is not None and tapped.softmax is not None
    }
    changes = {index: moves(out)[1:] for index, out in given.items()}
    other = {index: (mask[1:] != mask[:1]).flatten(1).any(1).tolist() for index, mask in seen.items()}
    for source in range(total):
        _enter(found, run, source, {index: each[source] for index, each in changes.items()})
        _enter_support(found, source, [index for index, each in other.items() if each[source]])


def _rows(run: Run) -> int:
    return len(run.text) + 1


_noised = perturbed(_rows)(_noise_each)


_signature = lru_cache(maxsize=64)(inspect.signature)


def _one_by_one(run: Run) -> Handed:
    """The same with one row a forward: every block takes the stream that it took in a first one."""
    ids = token_ids(run, _length(run))
    taken: dict[int, torch.Tensor] = {}

    def taking(index: int, source: int | None) -> Change:
        def change(stream: torch.Tensor) -> torch.Tensor:
            held = taken.setdefault(index, stream.detach().clone())
            return noisy(held) if index == source else held

        return change

    def run_once(source: int | None) -> tuple[dict[int, torch.Tensor], Tap]:
        given: dict[Any, torch.Tensor] = {}
        blocks = [(index, envoy._module) for index, envoy in enumerate(run.text.envoys)]
        tap = _tap(run)
        entering = [(module, taking(index, source)) for index, module in blocks]
        with hooks(entering, [(module, Rows(1).keep(given, index)) for index, module in blocks]), tap:
            forward(run, ids)
        return given, tap

    plain, tap = run_once(None)
    before = dict(_seen(tap))
    found = Handed()
    for source in range(len(run.text)):
        given, after = run_once(source)
        changes = {index: moved(torch.cat([plain[index][:1], out[:1]]), 1) for index, out in given.items()}
        _enter(found, run, source, changes)
        apart = [index for index, seen in _seen(after) if not torch.equal(seen.softmax[0], before[index].softmax[0])]
        _enter_support(found, source, apart)
    return found


def _enter(found: Handed, run: Run, source: int, changes: Mapping[int, float]) -> None:
    """Enters by how much what the other blocks give changed, where one block took noise."""
    for index, change in changes.items():
        if index != source and change > tolerance(run):
            found.moves[source, index] = change


def _enter_support(found: Handed, source: int, changed: Iterable[int]) -> None:
    """Enters the blocks where what a query may attend to changed, where one block took noise."""
    for index in changed:
        found.own.add(index) if index == source else found.support.add((source, index))


def _tap(run: Run) -> Tap:
    return Tap(attentions(run), softmax=lambda scores, _: scores > MASKED)


def _seen(tap: Tap) -> Iterator[tuple[int, Any]]:
    """The blocks whose softmax was heard, and what was."""
    return ((index, tapped) for index, tapped in enumerate(tap.blocks) if tapped.softmax is not None)


def _length(run: Run) -> int:
    """Positions of the prompt: more than a top-k of an attention takes, where there is one."""
    return LENGTH if any(tapped.chosen for tapped in projections(run).taps) else BRIEF


def _look(
    ways: dict[Pair, set[str]],
    rows: Rows,
    index: int,
    block: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Enters the arguments of a block, apart from its stream, that differ in a row whose noise another block took."""
    bound = _signature(type(block).forward).bind_partial(block, *args, **kwargs).arguments
    named = {**bound, **bound.pop("kwargs", {})}
    stream = first_given(args, kwargs)
    for name, value in named.items():
        for tensor in _tensors(value):
            if tensor is stream or tensor.ndim < 2 or not rows.in_parts(tensor):
                continue
            first = rows.part(tensor, 0)
            for source in range(rows.total - 2):
                if source != index and not torch.equal(rows.part(tensor, source + 1), first):
                    ways.setdefault((source, index), set()).add(name)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in an argument, also in lists, tuples and mappings."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
