"""Anatomy: how a block is wired, derived from one traced forward.

From the block's output as an expression (see :mod:`probe.measure.symbols`) follow its sublayers in forward order, the
norms before and after each, what is really added to the stream, what multiplies it, and whether sublayers run one
after the other or side by side. What a module is, is decided by what it does: a norm forgets its input's scale, an
attention takes a softmax over positions, a mixture takes a top-k.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch

from .mixing import mixes_positions
from .sums import Factor, Node, NormNode, ProductNode, StreamNode, SumNode, TermNode
from .symbols import (
    CHOOSES,
    BlockTrace,
    Expression,
    Leaf,
    Opaque,
    Product,
    Stream,
    Sum,
    Symbols,
    carries_stream,
    contains_stream,
)

Topology = Literal["sequential", "parallel"]
Kind = Literal["attention", "mixer", "mlp", "moe", "branch"]


class Underivable(Exception):
    """The block's output is no sum over its input and its submodules; the message says what stood in the way."""


@dataclass(frozen=True)
class Term:
    """One contribution to the stream, as derived.

    ``hosts`` are the modules that compute it (one, or the members of a mixture beside a dense MLP, or none where the
    block's own children do); paths are native, relative to the block. ``tensor`` is what was added.
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


@dataclass(frozen=True)
class BlockAnatomy:
    """One block's wiring: its terms in the order they are added, the factors on the whole sum, the way it returns, and
    the sum itself.
    """

    terms: tuple[Term, ...]
    factors: tuple[Factor, ...]
    topology: Topology
    returns: str
    tree: Node

    def signature(self) -> tuple[object, ...]:
        """What makes two blocks the same shape, sizes aside."""
        parts = tuple((t.leaf, t.hosts, t.kind, t.pre_norm, t.post_norm, t.factors) for t in self.terms)
        return (parts, self.tree, self.topology, self.returns)


def derive(blocks: list[torch.nn.Module], forward: object) -> list[BlockAnatomy]:
    """Derive every block's anatomy from one call of ``forward``.

    Raises:
        Underivable: a block's output is not a sum over its input and its submodules.
    """
    symbols = Symbols(blocks)
    with torch.no_grad(), symbols:
        forward()  # type: ignore[operator]
    return [
        _interpret(block, trace, index) for index, (block, trace) in enumerate(zip(blocks, symbols.traces, strict=True))
    ]


def _interpret(block: torch.nn.Module, trace: BlockTrace, index: int) -> BlockAnatomy:
    if trace.output is None or not carries_stream(trace.output):
        raise Underivable(f"block {index} ({type(block).__name__}) does not return a sum that has its input as a term")
    found: list[Term] = []
    tree, found = _in_forward_order(_tree(block, trace, trace.output, found, ()), found)
    points = [id(term.reads) for term in found]
    topology: Topology = "parallel" if len(found) > 1 and len(set(points)) == 1 else "sequential"
    return BlockAnatomy(tuple(found), _on_the_whole(tree), topology, trace.returns, tree)


def _tree(
    block: torch.nn.Module, trace: BlockTrace, expression: Expression, found: list[Term], factors: tuple[Factor, ...]
) -> Node:
    """The sum over the stream and the terms, which are interpreted and collected in the order they were added."""
    match expression:
        case Stream():
            return StreamNode()
        case Leaf() if carries_stream(expression) and expression.input is not None:
            return NormNode(_tree(block, trace, expression.input, found, ()), expression.path)
        case Product(of, Opaque(name, kind)):
            factor = _factor(block, name, kind)
            inner = factors if carries_stream(of) or isinstance(of, Sum) else (factor, *factors)
            return ProductNode(_tree(block, trace, of, found, inner), factor)
        case Sum(left, right) if not (isinstance(left, Opaque) or isinstance(right, Opaque)):
            before = _tree(block, trace, left, found, factors)
            return SumNode(before, _tree(block, trace, right, found, factors))
        case _:
            found.append(_term(block, trace, expression, factors))
            return TermNode(len(found) - 1)


def normed_points(expression: Expression | None) -> frozenset[int]:
    """The norms on the way of the stream itself, by identity."""
    match expression:
        case Leaf() if carries_stream(expression):
            return normed_points(expression.input) | {id(expression)}
        case Sum(left, right):
            return normed_points(left) | normed_points(right)
        case Product(of):
            return normed_points(of)
        case _:
            return frozenset()


def _in_forward_order(tree: Node, found: list[Term]) -> tuple[Node, list[Term]]:
    """The terms in the order they were computed, and the tree with their places."""
    order = sorted(range(len(found)), key=lambda place: found[place].order)

    def placed(node: Node) -> Node:
        match node:
            case TermNode(place):
                return TermNode(order.index(place))
            case SumNode(left, right):
                return SumNode(placed(left), placed(right))
            case ProductNode(of, factor):
                return ProductNode(placed(of), factor)
            case NormNode(of, norm):
                return NormNode(placed(of), norm)
            case _:
                return node

    return placed(tree), [found[place] for place in order]


def _factor(block: torch.nn.Module, name: str, kind: str) -> Factor:
    """A factor; a number goes by the one attribute of the block that holds it."""
    if kind == "constant":
        holders = [key for key, held in vars(block).items() if type(held) is float and f"{held:g}" == name]
        return Factor(holders[0] if len(holders) == 1 else name, kind)
    if kind == "tensor":
        raise Underivable(f"{type(block).__name__} multiplies by a tensor that is neither its parameter nor its buffer")
    return Factor(name, kind)


def _on_the_whole(tree: Node) -> tuple[Factor, ...]:
    """The factors on the whole sum, in the order they are applied."""
    found: list[Factor] = []
    while isinstance(tree, ProductNode):
        found.insert(0, tree.factor)
        tree = tree.of
    return tuple(found)


def _term(block: torch.nn.Module, trace: BlockTrace, expression: Expression, factors: tuple[Factor, ...]) -> Term:
    if not isinstance(expression, (Leaf, Sum)):
        raise Underivable(f"{type(block).__name__} adds a tensor to the stream that no submodule returned")
    path = Path(block, trace, points=normed_points(trace.output))
    reads = path.walk(expression)
    kind, hosts = path.kind()
    leaf = expression.path if isinstance(expression, Leaf) else ""
    return Term(
        leaf,
        tuple(hosts),
        kind,
        path.norm(after=False),
        path.norm(after=True),
        factors,
        reads,
        expression.tensor,
        expression.order,
    )


@dataclass
class Path:
    """The way from a term back to the stream: the modules on it that compute, and the norms before and after them."""

    block: torch.nn.Module
    trace: BlockTrace
    hosts: list[str] = field(default_factory=list)
    norms: list[tuple[str, bool]] = field(default_factory=list)
    points: frozenset[int] = frozenset()
    """Norms that are the stream itself: a term that reads one reads the stream, not through a norm of its own."""
    foreign: bool = False
    """Whether something from outside the block joins on the way."""

    def norm(self, *, after: bool) -> str | None:
        """The norm nearest the add on the far side of the hosts, or on the near side."""
        return next((path for path, before_hosts in self.norms if before_hosts != after), None)

    def kind(self) -> tuple[Kind, list[str]]:
        """What the hosts are. Parts of one module count as that module; children of the block that only compute from
        the stream are an MLP without a module, and those that also take something from outside are a branch.
        """
        kinds: set[Kind] = {_kind(self.trace, host) for host in self.hosts}
        mixture = "moe" in kinds or any(kind == "moe" for _, kind in _beside(self.trace))
        parents = {host.split(".")[0] for host in self.hosts}
        for mixing in ("attention", "mixer"):
            if mixing in kinds:
                return mixing, self.hosts
        if len(self.hosts) > 1 and not mixture:
            if len(parents) == 1:
                return "mlp", [parents.pop()]
            return ("branch" if self.foreign else "mlp"), []
        return ("moe" if "moe" in kinds or len(self.hosts) > 1 else "mlp"), self.hosts

    def walk(self, expression: Expression | None) -> Expression:
        """Follow an expression to the point of the stream it reads, collecting what is on the way."""
        match expression:
            case Leaf() if id(expression) in self.points:
                return expression
            case Leaf():
                return self._through(expression)
            case Product() if not contains_stream(expression):
                self.foreign |= isinstance(expression.factor, Opaque) and expression.factor.kind == "tensor"
                return self.walk(expression.of)
            case Sum() if not contains_stream(expression):
                known = [side for side in (expression.left, expression.right) if not isinstance(side, Opaque)]
                reads = self.walk(known[0])
                for side in known[1:]:
                    Path(self.block, self.trace, self.hosts, points=self.points).walk(side)
                return reads
            case None | Opaque():
                last = self.hosts[-1] if self.hosts else "a term"
                raise Underivable(f"{type(self.block).__name__}: the input of {last} could not be traced to the stream")
            case _:
                return expression

    def _through(self, leaf: Leaf) -> Expression:
        module = self.block.get_submodule(leaf.path)
        if leaf.norm:
            self.norms.append((leaf.path, bool(self.hosts)))
            return self.walk(leaf.input)
        computes = any(True for _ in module.parameters())
        entered = leaf.input
        if not isinstance(entered, Opaque) and entered is not None:
            if computes:
                self.hosts.append(leaf.path)
            return self.walk(entered)
        for outer in reversed(leaf.inside):  # arithmetic between submodules: take the module they are parts of
            if self.trace.entered.get(outer) is not None:
                self.hosts.append(outer)
                return self.walk(self.trace.entered[outer])
        self.hosts.append(leaf.path)
        return self.walk(None)


def _kind(trace: BlockTrace, path: str) -> Kind:
    """What a module is by what it does.

    An attention weighs positions with a softmax; a mixer lets positions reach one another without one; a mixture
    chooses; what is left is an MLP.
    """
    functions = trace.functions.get(path, set())
    if "attends" in functions:
        return "attention"
    if mixes_positions(*trace.calls[path]):
        return "attention" if "weighs" in functions else "mixer"
    return "moe" if functions & CHOOSES else "mlp"


def _beside(trace: BlockTrace) -> list[tuple[str, str]]:
    """Direct children of the block with their kinds, of those whose functions tell."""
    return [(path, "moe") for path, found in trace.functions.items() if "." not in path and "topk" in found]
