"""The block's sum as a tree: the stream, the terms that are added to it, and what multiplies either.

Without norms of the stream itself the tree is linear in its terms, so each has one multiplier on its way into the
block's output; and it reads as an expression over standard names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

Number: TypeAlias = float | torch.Tensor


@dataclass(frozen=True)
class Factor:
    """Something that multiplies: the name of a buffer or parameter of the block, or a number it knows by a name.

    Attributes:
        name: path from the block; for a number, the attribute that holds it, or its digits.
        kind: `buffer`, `parameter` or `constant`.
    """

    name: str
    kind: str


@dataclass(frozen=True)
class StreamNode:
    """The block's input."""


@dataclass(frozen=True)
class TermNode:
    """The contribution at this place in forward order."""

    place: int


@dataclass(frozen=True)
class SumNode:
    left: Node
    right: Node


@dataclass(frozen=True)
class ProductNode:
    of: Node
    factor: Factor


@dataclass(frozen=True)
class NormNode:
    """The stream itself, normed by a child of the block."""

    of: Node
    norm: str


Node: TypeAlias = StreamNode | TermNode | SumNode | ProductNode | NormNode


def value(
    node: Node,
    stream: torch.Tensor,
    terms: Sequence[torch.Tensor],
    number: Callable[[Factor], Number],
    normed: Callable[[str, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """The sum with tensors in the places of the stream and the terms; ``normed`` applies a norm by its path."""
    match node:
        case StreamNode():
            return stream
        case TermNode(place):
            return terms[place]
        case SumNode(left, right):
            return value(left, stream, terms, number, normed) + value(right, stream, terms, number, normed)
        case ProductNode(of, factor):
            return value(of, stream, terms, number, normed) * number(factor)
        case NormNode(of, norm):
            return normed(norm, value(of, stream, terms, number, normed))


def multiplier(node: Node, place: int, number: Callable[[Factor], Number]) -> Number | None:
    """What the term at ``place`` is multiplied by on its way into the whole.

    None where it is not in this part, or where a norm of the stream stands on its way.
    """
    match node:
        case TermNode(own):
            return 1.0 if own == place else None
        case SumNode(left, right):
            found = multiplier(left, place, number)
            return multiplier(right, place, number) if found is None else found
        case ProductNode(of, factor):
            inner = multiplier(of, place, number)
            return None if inner is None else inner * number(factor)
        case _:
            return None


def factors(node: Node) -> list[Factor]:
    """Every factor of the tree, in the order of the arithmetic."""
    match node:
        case SumNode(left, right):
            return factors(left) + factors(right)
        case ProductNode(of, factor):
            return [*factors(of), factor]
        case NormNode(of):
            return factors(of)
        case _:
            return []


def text(node: Node, stream: str, terms: Sequence[str]) -> str:
    """The sum as an expression: ``(x + a + b) * scalar``."""
    match node:
        case StreamNode():
            return stream
        case TermNode(place):
            return terms[place]
        case SumNode(left, right):
            return f"{text(left, stream, terms)} + {text(right, stream, terms)}"
        case ProductNode(of, factor):
            inner = text(of, stream, terms)
            return f"({inner}) * {factor.name}" if isinstance(of, SumNode) else f"{inner} * {factor.name}"
        case NormNode(of, norm):
            return f"{norm}({text(of, stream, terms)})"
