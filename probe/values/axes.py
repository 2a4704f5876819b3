"""How a model holds a value: the layout's axes, in the order and foldings of the tensor that is there.

``(batch num_heads) qk_head_dim key`` says that the first axis folds batch and heads and that the other two are swapped
against ``batch num_heads key qk_head_dim``; a ``1`` is an axis of that size which the layout does not have. Going from
the tensor to the layout only views it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations

import torch

UNIT = "1"

_GROUP = re.compile(r"\(([^)]+)\)|(\S+)")


@dataclass(frozen=True)
class Axes:
    """A tensor's axes, each one or several of the layout's, and the layout's own order."""

    groups: tuple[tuple[str, ...], ...]
    dims: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, dims: Sequence[str]) -> Axes:
        """Read ``(batch num_heads) key qk_head_dim``.

        Raises:
            ValueError: the names are not those of ``dims``, each once.
        """
        groups = tuple(tuple((folded or single).split()) for folded, single in _GROUP.findall(text))
        if sorted(name for group in groups for name in group if name != UNIT) != sorted(dims):
            raise ValueError(f"{text!r} does not hold the axes {' '.join(dims)}")
        return cls(groups, tuple(dims))

    def __str__(self) -> str:
        return " ".join(group[0] if len(group) == 1 else f"({' '.join(group)})" for group in self.groups)

    @property
    def _named(self) -> list[tuple[str, ...]]:
        return [group for group in self.groups if group != (UNIT,)]

    def with_unit(self, axis: int) -> Axes:
        """The same with an axis of size 1 put in at ``axis``."""
        return Axes((*self.groups[:axis], (UNIT,), *self.groups[axis:]), self.dims)

    @property
    def plain(self) -> bool:
        """Whether the tensor has the layout's axes as they are."""
        return self.groups == tuple((name,) for name in self.dims)

    def view(self, tensor: torch.Tensor, sizes: Mapping[str, int]) -> torch.Tensor:
        """The tensor in the layout's axes: a view of it.

        Args:
            tensor: as the model holds it.
            sizes: of the axes that are folded; of each folding one may be missing.

        Raises:
            ValueError: the tensor does not have these axes.
        """
        if tensor.ndim != len(self.groups):
            raise ValueError(f"a tensor of shape {list(tensor.shape)} does not fold as {self}")
        for axis in reversed([axis for axis, group in enumerate(self.groups) if group == (UNIT,)]):
            tensor = tensor.squeeze(axis)
        names: list[str] = []
        for group in self._named:
            if len(group) > 1:
                try:
                    tensor = tensor.unflatten(len(names), [sizes.get(name, -1) for name in group])
                except RuntimeError as error:
                    raise ValueError(f"a tensor of shape {list(tensor.shape)} does not fold as {self}") from error
            names += group
        return tensor.permute([names.index(name) for name in self.dims])

    def expression(self) -> str:
        """:meth:`view` as an expression on ``tensor``, with the axes' names for their sizes."""
        units = [axis for axis, group in enumerate(self.groups) if group == (UNIT,)]
        written = "tensor" + "".join(f".squeeze({axis})" for axis in reversed(units))
        names: list[str] = []
        for group in self._named:
            if len(group) > 1:
                written += f".unflatten({len(names)}, ({', '.join(group)}))"
            names += group
        order = [names.index(name) for name in self.dims]
        return written if order == sorted(order) else f"{written}.permute({', '.join(map(str, order))})"

    def fold(self, value: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        """A value in the layout's axes as the model holds it, in ``shape``."""
        order = [name for group in self._named for name in group]
        return value.permute([self.dims.index(name) for name in order]).reshape(list(shape))


@cache
def forms(dims: tuple[str, ...]) -> tuple[Axes, ...]:
    """Every way in which these axes can be held, the nearest to the layout first: as they are, folded, swapped."""
    return tuple(
        Axes(groups, dims)
        for order in sorted(permutations(dims), key=lambda order: order != dims)
        for groups in _foldings(order)
    )


def _foldings(names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], ...]]:
    """The names in groups of one or two neighbours, the least folded first."""
    found: list[tuple[tuple[str, ...], ...]] = [()] if not names else []
    if names:
        found += [(names[:1], *rest) for rest in _foldings(names[1:])]
    if len(names) > 1:
        found += [(names[:2], *rest) for rest in _foldings(names[2:])]
    yield from sorted(found, key=len, reverse=True)
