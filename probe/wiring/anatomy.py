"""Anatomy: how a block is wired, derived from one traced forward.

From the block's output as an expression (see :mod:`probe.wiring.symbols`) follow its sum
(:mod:`probe.wiring.assembly`), its sublayers in forward order, the norms before and after each
(:mod:`probe.wiring.path`), what is really added to the stream, what multiplies it, and whether sublayers run one after
the other or side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch

from .assembly import Assembly, Gate, Underivable, named, ordered
from .expressions import Element, Expression, Leaf, Sum, carries_stream
from .expressions import order as order_of
from .nodes import Factor, InterpolationNode, Node, OuterNode, ProductNode, TermNode, children
from .path import Kind, Path
from .sums import value
from .symbols import BlockTrace, Symbols

Topology = Literal["sequential", "parallel"]

PREFIXES: dict[Kind, str] = {
    "attention": "attention",
    "mixer": "attention",
    "mlp": "mlp",
    "moe": "mlp",
    "branch": "branch",
}
"""How the gates of a contribution begin, by its kind: as the contribution's standard name does."""


@dataclass(frozen=True)
class Term:
    """One contribution to the stream, as derived.

    Attributes:
        leaf: path of the submodule that returned what is added; empty where an operation of the block made it.
        element: where it stands in what that submodule returned; empty where it is all of it.
        hosts: the modules that compute it (one, or the members of a mixture beside a dense MLP, or none where the
            block's own children do), nearest the add first; paths are native, relative to the block.
        factors: what multiplies it alone, in the order of the arithmetic, gates aside.
        gates: names of the gates that multiply it alone.
        pre_norm: the norm between the stream and the hosts, nearest the hosts; the stream itself may pass through it.
        post_norm: the norm between the hosts and the add, nearest the add.
        reads: the last point of the stream that it is computed from.
        tensor: what was added.
    """

    leaf: str
    hosts: tuple[str, ...]
    kind: Kind
    pre_norm: str | None
    post_norm: str | None
    factors: tuple[Factor, ...]
    reads: Expression
    tensor: torch.Tensor
    order: int
    element: Element = ()
    gates: tuple[str, ...] = ()

    def fed_by(self, terms: tuple[Term, ...]) -> list[str]:
        """Paths of the modules, in forward order, whose result is added to the stream where this term reads it and to
        nothing else: those of the sum that it reads which are none of the block's ``terms``.
        """
        own = {term.leaf for term in terms}
        found: dict[str, int] = {}

        def look(expression: Expression) -> None:
            match expression:
                case Sum(left, right):
                    look(left)
                    look(right)
                case Leaf(path=path) if not expression.norm and path not in own:
                    found[path] = expression.order
                    for each in expression.inputs:
                        look(each)

        if isinstance(self.reads, Sum):
            look(self.reads)
        return sorted(found, key=lambda path: found[path])


@dataclass(frozen=True)
class BlockAnatomy:
    """One block's wiring.

    Attributes:
        terms: the contributions, in forward order.
        factors: what multiplies the whole sum.
        returns: how the block returns its stream.
        tree: the sum itself.
        gates: the factors of the sum that no attribute holds, by name.
    """

    terms: tuple[Term, ...]
    factors: tuple[Factor, ...]
    topology: Topology
    returns: str
    tree: Node
    gates: dict[str, Gate] = field(default_factory=dict)

    def signature(self) -> tuple[object, ...]:
        """What makes two blocks the same shape, sizes aside."""
        parts = tuple((t.leaf, t.element, t.hosts, t.kind, t.pre_norm, t.post_norm, t.factors) for t in self.terms)
        return (parts, self.tree, self.topology, self.returns)

    def evaluate(self, block: torch.nn.Module, stream: torch.Tensor) -> torch.Tensor:
        """The block's sum on the terms and gates of the run that it was derived from.

        Args:
            block: the native block.
            stream: what the block was called with in that run.
        """
        with torch.no_grad():
            return value(
                self.tree,
                stream,
                [term.tensor for term in self.terms],
                partial(held_value, block, self),
                lambda norm, part: block.get_submodule(norm)(part),
            )


def held_value(block: torch.nn.Module, anatomy: BlockAnatomy, factor: Factor) -> float | torch.Tensor:
    """A factor's value: the gate of that name, the block's buffer, parameter or attribute, or the number itself."""
    if factor.name in anatomy.gates:
        return anatomy.gates[factor.name].tensor.float()
    held: Any = block
    try:
        for step in factor.name.split("."):
            held = getattr(held, step)
    except AttributeError:
        return float(factor.name)
    return held.float() if isinstance(held, torch.Tensor) else float(held)


def derive(blocks: list[torch.nn.Module], forward: Callable[[], object]) -> list[BlockAnatomy]:
    """Derive every block's anatomy from one call of ``forward``; a block that runs several times, from its first run.

    Raises:
        Underivable: a block's output is not a sum over its input and its submodules.
    """
    symbols = Symbols(blocks)
    with torch.no_grad(), symbols:
        forward()
    return [
        _interpret(block, trace, index) for index, (block, trace) in enumerate(zip(blocks, symbols.traces, strict=True))
    ]


def _interpret(block: torch.nn.Module, trace: BlockTrace, index: int) -> BlockAnatomy:
    name = f"block {index} ({type(block).__name__})"
    if not trace.done:
        raise Underivable(f"{name} did not run")
    if trace.output is None:
        raise Underivable(f"{name} returns a tensor that is not made from its input")
    assembly = Assembly(block)
    tree = assembly.node(trace.output)
    if not carries_stream(trace.output) and len(assembly.terms) < 2:
        raise Underivable(f"{name} returns what one of its modules computed, and adds it to nothing")
    order = sorted(range(len(assembly.terms)), key=lambda place: order_of(assembly.terms[place]))
    expressions = [assembly.terms[place] for place in order]
    walked = [_walked(block, trace, expression, assembly) for expression in expressions]
    kinds = _kinds([path for path, _ in walked])
    tree, gates = named(ordered(tree, order), assembly.gates, [PREFIXES[kind] for kind, _ in kinds])
    own = _own_factors(tree)
    found = []
    for place, ((path, reads), (kind, hosts)) in enumerate(zip(walked, kinds, strict=True)):
        leaf, element, tensor = _held(block, expressions[place])
        factors = own.get(place, [])
        found.append(
            Term(
                leaf=leaf,
                hosts=hosts,
                kind=kind,
                pre_norm=path.before or _stream_norm(trace.output, reads),
                post_norm=path.after,
                factors=tuple(factor for factor in factors if factor.kind != "gate"),
                reads=reads,
                tensor=tensor,
                order=order_of(expressions[place]),
                element=element,
                gates=tuple(factor.name for factor in factors if factor.kind == "gate"),
            )
        )
    points = {id(term.reads) for term in found}
    topology: Topology = "parallel" if len(found) > 1 and len(points) == 1 else "sequential"
    return BlockAnatomy(tuple(found), _on_the_whole(tree), topology, trace.returns, tree, gates)


def _walked(
    block: torch.nn.Module, trace: BlockTrace, expression: Expression, assembly: Assembly
) -> tuple[Path, Expression]:
    points = assembly.points - {id(expression)}
    path = Path(block, trace, frozenset(points), frozenset(assembly.connections - {""}))
    return path, path.walk(expression)


def _stream_norm(output: Expression, reads: Expression) -> str | None:
    """The norm in front of a sublayer that the stream itself passes through. Where the block returns its stream normed,
    its norms follow the adds, and stand in front of none.
    """
    normed = isinstance(output, Leaf) and output.norm
    return reads.path if isinstance(reads, Leaf) and reads.norm and not normed else None


def _kinds(paths: list[Path]) -> list[tuple[Kind, tuple[str, ...]]]:
    """Kind and hosts of each term. An MLP whose input is shifted by one position is no mixer beside a real one."""
    kinds = [path.kind() for path in paths]
    mixes = any(
        kind in ("attention", "mixer") and path.steps_back != 1 for (kind, _), path in zip(kinds, paths, strict=True)
    )
    return [
        ("mlp", hosts) if mixes and kind == "mixer" and path.steps_back == 1 else (kind, hosts)
        for (kind, hosts), path in zip(kinds, paths, strict=True)
    ]


def _held(block: torch.nn.Module, expression: Expression) -> tuple[str, Element, torch.Tensor]:
    """Where what is added is held, and its tensor.

    Raises:
        Underivable: an operation of the block made it, so that no module returns it.
    """
    if not isinstance(expression, Leaf):
        raise Underivable(f"{type(block).__name__} adds what an operation of its own made, and no module returns it")
    return expression.path, expression.element, expression.tensor


def _own_factors(tree: Node) -> dict[int, list[Factor]]:
    """For each term what multiplies it before anything is added to it, in the order of the arithmetic."""
    found: dict[int, list[Factor]] = {}

    def look(node: Node, outside: list[Factor]) -> None:
        match node:
            case TermNode(place):
                found.setdefault(place, outside)
            case ProductNode(of, factor) | OuterNode(of, factor):
                look(of, [factor, *outside])
            case InterpolationNode(of, toward, rate):
                look(of, [])
                look(toward, [rate])
            case _:
                for child in children(node):
                    look(child, [])

    look(tree, [])
    return found


def _on_the_whole(tree: Node) -> tuple[Factor, ...]:
    """The factors on the whole sum, in the order they are applied."""
    found: list[Factor] = []
    while isinstance(tree, ProductNode):
        found.insert(0, tree.factor)
        tree = tree.of
    return tuple(found)


__all__ = ["BlockAnatomy", "Gate", "Term", "Underivable", "derive", "held_value"]
