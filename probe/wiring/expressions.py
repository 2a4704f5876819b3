"""Expressions: what made a tensor of a block, as sums and products over its submodules' outputs and its own input.

They are made by :mod:`probe.wiring.symbols` during a forward and read by :mod:`probe.wiring.assembly`, which turns a
block's output into a sum, and by :mod:`probe.wiring.path`, which follows a term back to the stream it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch

Element: TypeAlias = tuple[int | str, ...]


@dataclass(frozen=True, eq=False)
class Stream:
    """The block's input."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """A tensor that a submodule returned.

    Attributes:
        path: the submodule's path in the block.
        element: where the tensor stands in what the submodule returned; empty where it is all of it.
        inputs: the expressions of the tensors it was called with, as far as they are known.
        tensor: a copy, taken when the submodule returned.
        inside: the modules it ran inside of, outermost first.
        order: grows with the forward.
        norm: whether the submodule is a norm.
    """

    path: str
    element: Element
    inputs: tuple[Expression, ...]
    tensor: torch.Tensor
    inside: tuple[str, ...] = ()
    order: int = 0
    norm: bool = False

    @property
    def input(self) -> Expression | None:
        """What it was called with: of its inputs the first that comes from the block's input."""
        return next((each for each in self.inputs if depends(each)), None)


@dataclass(frozen=True, eq=False)
class Opaque:
    """A number, or a buffer or parameter of the block under its name, or a tensor from outside the block.

    ``kind`` is `constant`, `buffer`, `parameter` or `tensor`.
    """

    name: str
    kind: str


@dataclass(frozen=True, eq=False)
class Sum:
    left: Expression
    right: Expression
    order: int = 0


@dataclass(frozen=True, eq=False)
class Product:
    """A tensor times a factor.

    Attributes:
        used: the factor's tensor, in the shape in which it multiplies; None where it is a number or has a name.
        axis: the axis, counted from the end, along which the factor spreads the tensor; None where it spreads it not.
    """

    of: Expression
    factor: Expression
    used: torch.Tensor | None = None
    axis: int | None = None
    order: int = 0


@dataclass(frozen=True, eq=False)
class Made:
    """What another operation made of its operands.

    Attributes:
        operation: `permute`, `select`, `assign`, `spread` and `matmul` are followed further; others only by operand.
        detail: the axes of a permutation, or the index of a selection or an assignment.
        used: the matrix of a `matmul` with the stream.
    """

    operation: str
    operands: tuple[Expression, ...]
    detail: object = None
    used: torch.Tensor | None = None
    order: int = 0


Expression = Stream | Leaf | Opaque | Sum | Product | Made

FOLLOWED = frozenset({"permute", "select", "assign", "spread", "matmul"})
"""Operations through which a stream stays a stream: its lanes are picked out, put back, mixed or reordered."""


def parts(expression: Expression) -> tuple[Expression, ...]:
    """What an expression was made from."""
    match expression:
        case Leaf():
            return expression.inputs
        case Sum(left, right):
            return (left, right)
        case Product(of, factor):
            return (of, factor)
        case Made(_, operands):
            return operands
        case _:
            return ()


def every(expression: Expression) -> Iterator[Expression]:
    """An expression and all it was made from, each once."""
    seen: set[int] = set()
    open_ends = [expression]
    while open_ends:
        each = open_ends.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            open_ends.extend(parts(each))


def _once(tell: Callable[[Expression], bool]) -> Callable[[Expression | None], bool]:
    """A question about an expression, asked of each once: expressions share parts, and a loop makes them deep."""
    key = f"_{tell.__name__}"

    def asked(expression: Expression | None) -> bool:
        if expression is None:
            return False
        known = expression.__dict__.get(key)
        if known is None:
            known = tell(expression)
            object.__setattr__(expression, key, known)
        return bool(known)

    asked.__doc__ = tell.__doc__
    return asked


@_once
def depends(expression: Expression) -> bool:
    """Whether the block's input is among what made an expression."""
    return isinstance(expression, Stream) or any(depends(part) for part in parts(expression))


@_once
def contains_stream(expression: Expression) -> bool:
    """Whether ``expression`` is a point of the residual stream: the block's input, or a sum that has it as a term."""
    match expression:
        case Sum(left, right):
            return contains_stream(left) or contains_stream(right)
        case Product(of):
            return contains_stream(of)
        case Made(operation, operands) if operation in FOLLOWED:
            return any(contains_stream(operand) for operand in operands)
        case _:
            return isinstance(expression, Stream)


@_once
def carries_stream(expression: Expression) -> bool:
    """Whether ``expression`` is the stream, a sum with it, or a norm of either."""
    match expression:
        case Leaf():
            return expression.norm and carries_stream(expression.input)
        case Sum(left, right):
            return carries_stream(left) or carries_stream(right)
        case Product(of):
            return carries_stream(of)
        case Made(operation, operands) if operation in FOLLOWED:
            return any(carries_stream(operand) for operand in operands)
        case _:
            return isinstance(expression, Stream)


def unscaled(expression: Expression | None) -> Expression | None:
    """An expression without the factors on it."""
    while isinstance(expression, Product):
        expression = expression.of
    return expression


def order(expression: Expression) -> int:
    """When an expression was made: grows with the forward."""
    return getattr(expression, "order", 0)
