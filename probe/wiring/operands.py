"""Operands: the tensors in what a function or module is called with, and which of two does what to the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from .expressions import Element, Expression, Made, Opaque, carries_stream, depends

SUMS = {"add": False, "sub": False, "rsub": True}
"""Operations that add or subtract, and whether they take their operands in the other order."""


def tensors(value: Any, at: Element = ()) -> Iterator[tuple[Element, torch.Tensor]]:
    """The tensors of a forward's arguments or return value, with where they stand in it."""
    if isinstance(value, torch.Tensor):
        yield at, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors(item, (*at, key))
    elif isinstance(value, (tuple, list)):
        for place, item in enumerate(value):
            yield from tensors(item, (*at, place))


def first_tensor(value: Any) -> torch.Tensor | None:
    """The first tensor of a forward's arguments or return value."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return next((found for item in value[:1] if (found := first_tensor(item)) is not None), None)
    return None


def first_given(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.Tensor | None:
    """The first argument of a call that is a tensor itself, those by place before those by name."""
    return next((value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)), None)


def arithmetic(name: str) -> tuple[str, bool]:
    """A function's bare name, and whether it takes its operands in the other order: `__rsub__` is `sub`, reversed."""
    bare = name.strip("_")
    if bare in SUMS:
        return bare, SUMS[bare]
    if name.startswith("__r") and bare[1:] in ("add", "sub", "mul", "div", "truediv"):
        return bare[1:], bare[1:] not in ("add", "mul")
    if name.startswith("__i"):
        return bare[1:], False
    return bare, False


def is_factor(left: Expression, left_value: Any, right: Expression, right_value: Any) -> bool:
    """Whether of two operands the left one is the factor: a number or parameter, what does not come from the stream,
    what multiplies the stream, the smaller one, or the one that an operation made and no module returned.
    """
    rules: list[Callable[[Expression, Any], bool]] = [
        lambda each, _: not isinstance(each, Opaque),
        lambda each, _: carries_stream(each),
        lambda each, _: depends(each),
        lambda _, value: value.numel() >= max(left_value.numel(), right_value.numel()),
        lambda each, _: not isinstance(each, Made),
    ]
    for is_body in rules:
        sides = is_body(left, left_value), is_body(right, right_value)
        if sides[0] != sides[1]:
            return sides[1]
    return False


def spread_axis(value: Any, out: torch.Tensor) -> int | None:
    """The axis, from the end, along which a product is longer than the tensor that was multiplied."""
    if not isinstance(value, torch.Tensor) or value.ndim != out.ndim:
        return None
    return next((axis for axis in range(-out.ndim, 0) if value.shape[axis] < out.shape[axis]), None)


def axes(value: torch.Tensor, name: str, rest: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    """The order of axes that a permutation leaves: entry ``i`` is the old place of the new axis ``i``."""
    places = torch.empty(tuple(range(value.ndim)), device="meta")
    return tuple(getattr(torch.Tensor, name)(places, *rest, **kwargs).shape)
