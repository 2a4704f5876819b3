"""Rows of a batch: hooks that change what a module takes or gives on single rows, and keep it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

Change = Callable[[torch.Tensor], torch.Tensor]
"""Gives the tensor a module goes on with."""


@dataclass(frozen=True)
class Times:
    """A change that multiplies."""

    factor: float

    def __call__(self, row: torch.Tensor) -> torch.Tensor:
        return row * self.factor


@contextmanager
def removed(handle: Any) -> Any:
    """Removes a hook when the context ends."""
    try:
        yield handle
    finally:
        handle.remove()


def unheard(call: Callable[..., Any]) -> Callable[..., Any]:
    """A call whose arithmetic is none of the model's: a mode that listens to torch's functions hears nothing of it."""

    def quietly(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return call(*args, **kwargs)

    return quietly


@contextmanager
def hooks(
    entering: Iterable[tuple[torch.nn.Module, Change]] = (),
    leaving: Iterable[tuple[torch.nn.Module, Change]] = (),
    *,
    alike: bool = False,
) -> Any:
    """Changes what modules are called with and what they return, while the context lasts.

    Args:
        entering: a module, and what becomes of the first tensor it is called with.
        leaving: a module, and what becomes of the first tensor it returns.
        alike: change every tensor of the first one's shape that a module is called with: an attention may be given
            queries, keys and values to be made from streams of their own.
    """
    handles: list[Any] = []
    try:
        for module, changes in _by_module(entering):
            handles.append(module.register_forward_pre_hook(_entering(_one_by_one(changes), alike), with_kwargs=True))
        for module, changes in _by_module(leaving):
            handles.append(module.register_forward_hook(_leaving(_one_by_one(changes))))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _by_module(pairs: Iterable[tuple[torch.nn.Module, Change]]) -> Iterable[tuple[torch.nn.Module, list[Change]]]:
    """Each module once, with its changes in their order: one hook costs less than several."""
    found: dict[torch.nn.Module, list[Change]] = {}
    for module, change in pairs:
        found.setdefault(module, []).append(change)
    return found.items()


def _one_by_one(changes: list[Change]) -> Change:
    def change(tensor: torch.Tensor) -> torch.Tensor:
        for each in changes:
            tensor = each(tensor)
        return tensor

    return changes[0] if len(changes) == 1 else change


def _entering(change: Change, alike: bool) -> Callable[..., Any]:
    @unheard
    def hook(
        _: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        first = next(value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
        changed = change(first)

        def instead(value: Any) -> Any:
            """A module may be given its input several times."""
            if value is first:
                return changed
            other = alike and isinstance(value, torch.Tensor) and value.shape == first.shape
            return change(value) if other and value.is_floating_point() else value

        return tuple(map(instead, args)), {name: instead(value) for name, value in kwargs.items()}

    return hook


def _leaving(change: Change) -> Callable[..., Any]:
    @unheard
    def hook(_: torch.nn.Module, __: Any, output: Any) -> Any:
        if isinstance(output, torch.Tensor):
            return change(output)
        return type(output)([change(output[0]), *output[1:]])

    return hook


@lru_cache(maxsize=64)
def _factors(each: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(each)


@dataclass(frozen=True)
class Rows:
    """The rows of a batch, in tensors that have a row axis and in those where tokens of all rows are one axis.

    Attributes:
        total: how many there are.
        batch: how many the batch has, where these are only some of them: its row 0, and those from ``first`` on.
    """

    total: int
    batch: int = 0
    first: int = 1

    def share(self, first: int, count: int) -> Rows:
        """Row 0 and ``count`` rows from ``first`` on, to be counted from 1 on as if they were a batch."""
        return Rows(1 + count, self._size, first)

    @property
    def _size(self) -> int:
        return self.batch or self.total

    def axis(self, tensor: torch.Tensor) -> int:
        """The axis that holds the rows: the first, or the second of a stream whose first axis holds its lanes."""
        lanes_first = tensor.ndim == 4 and tensor.shape[0] % self._size and not tensor.shape[1] % self._size
        return 1 if lanes_first else 0

    def in_parts(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor may have a part for every row."""
        return tensor.shape[self.axis(tensor)] % self._size == 0

    def part(self, tensor: torch.Tensor, row: int) -> torch.Tensor:
        """The part of a tensor that belongs to a row, a view."""
        return self._parts(tensor, self._place(row), 1)

    def _place(self, row: int) -> int:
        """Where a row stands in the batch."""
        return row and row + self.first - 1

    def _parts(self, tensor: torch.Tensor, place: int, count: int) -> torch.Tensor:
        """The part of some rows of the batch, a view."""
        axis = self.axis(tensor)
        size = tensor.shape[axis] // self._size
        return tensor.narrow(axis, place * size, count * size)

    def _one_each(self, tensor: torch.Tensor) -> bool:
        """Whether the first axis has one entry a row."""
        return tensor.shape[0] == self._size and self.axis(tensor) == 0

    def only(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of a tensor without the rows of the batch that are none of these."""
        if self.total == self._size:
            return tensor.clone()
        if self._one_each(tensor):
            return torch.cat((tensor[:1], tensor[self.first : self.first + self.total - 1]))
        parts = self._parts(tensor, 0, 1), self._parts(tensor, self.first, self.total - 1)
        return torch.cat(parts, self.axis(tensor))

    def align(self, tensor: torch.Tensor) -> torch.Tensor:
        """Every row set to row 0, so that what differs between rows afterwards was changed after this point."""
        changed = tensor.clone()
        if self._one_each(tensor):
            changed[self.first : self.first + self.total - 1] = tensor[0]
            return changed
        repeats = [1] * tensor.ndim
        repeats[self.axis(tensor)] = self.total - 1
        self._parts(changed, self.first, self.total - 1).copy_(self.part(tensor, 0).repeat(*repeats))
        return changed

    def change(self, row: int, how: Change) -> Change:
        """Changes one row, see :meth:`changes`."""
        return self.changes({row: how})

    def changes(self, each: Mapping[int, Change]) -> Change:
        """Changes some rows, each given as ``[seq, width]`` or whatever follows the row axis, and leaves the others;
        indices stay as they are.
        """
        others: Mapping[int, Change] = {row: how for row, how in each.items() if not isinstance(how, Times)}
        multiplied = {self._place(row): how.factor for row, how in each.items() if isinstance(how, Times)}
        factors = _factors(tuple(multiplied.get(place, 1.0) for place in range(self._size))) if multiplied else None

        def change(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.is_floating_point():
                return tensor
            plain = tensor.ndim > 2 and self._one_each(tensor)
            if plain and factors is not None:
                changed, left = tensor * factors.to(tensor).view(-1, *[1] * (tensor.ndim - 1)), others
            else:
                changed, left = tensor.clone(), each
            for row, how in left.items():
                target = changed[self._place(row)] if plain else self.part(changed, row)
                only = not plain and target.shape[0] == 1 and tensor.ndim > 2
                target.copy_(how(target[0])[None] if only else how(target))
            return changed

        return change

    def keep(self, store: dict[Any, torch.Tensor], name: Any) -> Change:
        """Changes nothing and keeps a float32 copy of what passes, ``[rows, seq, width]`` for a stream."""

        def change(tensor: torch.Tensor) -> torch.Tensor:
            store[name] = self.by_row(tensor)
            return tensor

        return change

    def by_row(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of these rows of a tensor in float32, ``[rows, seq, width]`` for a stream."""
        kept = self.only(tensor.detach()).float()
        if tensor.ndim == 3 and self._one_each(tensor):
            return kept
        return kept.movedim(self.axis(tensor), 0).reshape(self.total, -1, tensor.shape[-1])
