"""The parts of a block's sum as a tree: the stream, the terms that are added to it, and what multiplies either."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Factor:
    """Something that multiplies, by its name in the text.

    Attributes:
        name: path from the block of a buffer or parameter; for a number, the attribute that holds it, or its digits;
            for what is computed, an expression over parameters, or the name of a gate (`attention_post`).
        kind: `buffer`, `parameter`, `constant`, `computed` (from parameters and numbers alone) or `gate` (from the
            stream, so that it differs from run to run).
    """

    name: str
    kind: str


MINUS = Factor("-1", "constant")


@dataclass(frozen=True)
class StreamNode:
    """The block's input."""


@dataclass(frozen=True)
class TermNode:
    """The contribution at this place in forward order."""

    place: int


@dataclass(frozen=True)
class ParameterNode:
    """A buffer or parameter that is added."""

    factor: Factor


@dataclass(frozen=True)
class SumNode:
    left: Node
    right: Node


@dataclass(frozen=True)
class ProductNode:
    of: Node
    factor: Factor


@dataclass(frozen=True)
class OuterNode:
    """A part of the sum spread over the lanes of the stream, each lane with its own weight; ``axis`` is the lanes' axis
    from the end.
    """

    of: Node
    factor: Factor
    axis: int


@dataclass(frozen=True)
class MixNode:
    """The lanes of the stream mixed by a matrix, at each position by its own: lane ``j`` becomes the sum over ``i`` of
    ``matrix[j, i]`` times lane ``i``, and of ``matrix[i, j]`` where ``transposed``.
    """

    of: Node
    factor: Factor
    axis: int
    transposed: bool


@dataclass(frozen=True)
class LaneNode:
    """One lane of the stream; the lanes are its first axis."""

    of: Node
    lane: int


@dataclass(frozen=True)
class LanesNode:
    """The stream with something added to its lanes from ``start`` on; the lanes are its first axis."""

    of: Node
    added: Node
    start: int


@dataclass(frozen=True)
class InterpolationNode:
    """What lies between two parts, at ``rate`` of the way from the first."""

    of: Node
    toward: Node
    rate: Factor


@dataclass(frozen=True)
class NormNode:
    """The stream itself, normed by a child of the block."""

    of: Node
    norm: str


@dataclass(frozen=True)
class SharedNode:
    """A part that stands several times in the sum, under a name."""

    of: Node
    name: str


Node: TypeAlias = (
    StreamNode
    | TermNode
    | ParameterNode
    | SumNode
    | ProductNode
    | OuterNode
    | MixNode
    | LaneNode
    | LanesNode
    | InterpolationNode
    | NormNode
    | SharedNode
)


def children(node: Node) -> list[Node]:
    """The parts of a node that are nodes, in the order of the arithmetic."""
    held = [getattr(node, each.name) for each in fields(node)]
    return [each for each in held if not isinstance(each, (Factor, str, int))]


def every(node: Node) -> Iterator[Node]:
    """A node and all under it, in the order of the arithmetic."""
    for child in children(node):
        yield from every(child)
    yield node


def rebuilt(node: Node, change: Callable[[Node], Node]) -> Node:
    """The tree with every node replaced by what ``change`` makes of it, from the leaves up."""
    held = {each.name: getattr(node, each.name) for each in fields(node)}
    inner: dict[str, Any] = {
        name: rebuilt(value, change) for name, value in held.items() if not isinstance(value, (Factor, str, int))
    }
    return change(replace(node, **inner) if inner else node)


def places(node: Node) -> set[int]:
    """The places of the terms in a part of the sum."""
    return {each.place for each in every(node) if isinstance(each, TermNode)}


def has_stream(node: Node) -> bool:
    """Whether the block's input is in a part of the sum."""
    return any(isinstance(each, StreamNode) for each in every(node))
