"""The block's sum, evaluated and written.

Without norms and mixes of the stream itself the tree (:mod:`probe.wiring.nodes`) is linear in its terms, so each has
one multiplier on its way into the block's output; and it reads as an expression over standard names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch

from .nodes import (
    MINUS,
    Factor,
    InterpolationNode,
    LaneNode,
    LanesNode,
    MixNode,
    Node,
    NormNode,
    OuterNode,
    ParameterNode,
    ProductNode,
    SharedNode,
    StreamNode,
    SumNode,
    TermNode,
    every,
    places,
)

Number: TypeAlias = float | torch.Tensor

ADDS = (SumNode, LanesNode, InterpolationNode)


def value(
    node: Node,
    stream: torch.Tensor,
    terms: Sequence[torch.Tensor],
    number: Callable[[Factor], Number],
    normed: Callable[[str, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """The sum with tensors in the places of the stream and the terms.

    Args:
        stream: the block's input, `[batch, seq, hidden]`, with an axis for its lanes where it has several.
        terms: the contributions in forward order, each `[batch, seq, hidden]` or with the same numbers in other axes.
        number: the value of a factor; that of a gate in the shape in which it multiplies.
        normed: applies a norm by its path.
    """

    def of(part: Node) -> torch.Tensor:
        match part:
            case StreamNode():
                return stream
            case TermNode(place):
                term = terms[place]
                return term.reshape(stream.shape) if term.numel() == stream.numel() else term
            case ParameterNode(factor):
                return torch.as_tensor(number(factor))
            case SumNode(left, right):
                return _fitting(of(left), stream) + _fitting(of(right), stream)
            case ProductNode(inner, factor):
                return of(inner) * number(factor)
            case OuterNode(inner, factor, axis):
                return of(inner).unsqueeze(axis) * number(factor)
            case MixNode(inner, factor, axis, transposed):
                matrix = torch.as_tensor(number(factor))
                lanes = of(inner).movedim(axis, -2)
                return ((matrix.mT if transposed else matrix) @ lanes).movedim(-2, axis)
            case LaneNode(inner, lane):
                return of(inner)[lane]
            case LanesNode(inner, added, start):
                whole = of(inner).clone()
                whole[start:] += of(added)
                return whole
            case InterpolationNode(inner, toward, rate):
                share = number(rate)
                return of(inner) * (1 - share) + of(toward) * share
            case NormNode(inner, norm):
                return normed(norm, of(inner))
            case SharedNode(inner):
                return of(inner)

    return of(node)


def _fitting(part: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
    """A part in the stream's axes, where it has as many numbers: lanes may be folded into the last axis."""
    return part.reshape(stream.shape) if part.numel() == stream.numel() else part


def multiplier(node: Node, place: int, number: Callable[[Factor], Number]) -> Number | None:
    """What the term at ``place`` is multiplied by on its way into the whole.

    None where it is not in this part, or where no constant says it: a norm or a mix of the stream stands on its way, or
    the sum has a gate, which an edit of the term may move.
    """
    return None if any(factor.kind == "gate" for factor in factors(node)) else _multiplier(node, place, number)


def _multiplier(node: Node, place: int, number: Callable[[Factor], Number]) -> Number | None:
    match node:
        case TermNode(own):
            return 1.0 if own == place else None
        case SumNode(left, right):
            return _added([_multiplier(side, place, number) for side in (left, right) if place in places(side)])
        case ProductNode(of, factor):
            inner = _multiplier(of, place, number)
            return None if inner is None else inner * number(factor)
        case InterpolationNode(of, toward, rate):
            share = number(rate)
            sides = [(of, 1 - share), (toward, share)]
            found = [(_multiplier(side, place, number), part) for side, part in sides if place in places(side)]
            return _added([None if inner is None else inner * part for inner, part in found])
        case SharedNode(of):
            return _multiplier(of, place, number)
        case _:
            return None


def _added(parts: list[Number | None]) -> Number | None:
    total: Number | None = None
    for part in parts:
        if part is None:
            return None
        total = part if total is None else total + part
    return total


def factors(node: Node) -> list[Factor]:
    """Every factor of the tree, in the order of the arithmetic; what is taken off instead of added has none for it."""
    found = []
    for each in every(node):
        match each:
            case ProductNode(_, factor) | OuterNode(_, factor) | MixNode(_, factor) | InterpolationNode(rate=factor):
                found.append(factor)
            case _:
                pass
    return [factor for factor in found if factor != MINUS]


def text(node: Node, stream: str, terms: Sequence[str], equals: str = "") -> str:
    """The sum as an expression: ``(x + a + b) * scalar``, with ``== output`` after it where ``equals`` names an output.

    A part that stands several times is given at the end: ``mixed + a == output, where mixed = …``.
    """
    shared = {each.name: each.of for each in every(node) if isinstance(each, SharedNode)}
    where = [f"{name} = {_written(part, stream, terms)}" for name, part in shared.items()]
    whole = _written(node, stream, terms) + (f" == {equals}" if equals else "")
    return f"{whole}, where {' and '.join(where)}" if where else whole


def _written(node: Node, stream: str, terms: Sequence[str]) -> str:
    def plain(part: Node) -> str:
        return _written(part, stream, terms)

    def inner(part: Node) -> str:
        return f"({plain(part)})" if isinstance(part, ADDS) else plain(part)

    match node:
        case StreamNode():
            return stream
        case TermNode(place):
            return terms[place]
        case ParameterNode(factor):
            return factor.name
        case SumNode(left, ProductNode(of, factor)) if factor == MINUS:
            return f"{plain(left)} - {inner(of)}"
        case SumNode(left, right):
            return f"{plain(left)} + {plain(right)}"
        case ProductNode(of, factor):
            return f"{inner(of)} * {factor.name}"
        case OuterNode(of, factor):
            return f"{factor.name} ⊗ {inner(of)}"
        case MixNode(of, factor, _, transposed):
            return f"{factor.name}{'ᵀ' if transposed else ''} · {inner(of)}"
        case LaneNode(of, lane):
            return f"{inner(of)}[{lane}]"
        case LanesNode(of, added, start):
            return f"{plain(of)} + ({plain(added)} on lanes {start}:)"
        case InterpolationNode(of, toward, rate):
            return f"(1 - {rate.name}) * {inner(of)} + {rate.name} * {inner(toward)}"
        case NormNode(of, norm):
            return f"{norm}({plain(of)})"
        case SharedNode(_, name):
            return name


__all__ = ["Factor", "Node", "Number", "factors", "multiplier", "text", "value"]
