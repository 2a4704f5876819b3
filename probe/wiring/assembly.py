"""From a block's output as an expression to its sum: which parts are the stream, which are terms, what multiplies them.

A term is what a submodule returned, or an operation made, and the stream is not in it. What multiplies and is computed
from the stream is a gate; it keeps its tensor, since no attribute holds it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import torch

from .expressions import Element, Expression, Leaf, Made, Opaque, Product, Stream, Sum, carries_stream, depends
from .expressions import every as every_expression
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
    has_stream,
    places,
    rebuilt,
)


class Underivable(Exception):
    """The block's output is no sum over its input and its submodules; the message says what stood in the way."""


@dataclass(frozen=True)
class Gate:
    """A factor that no attribute of the block holds.

    Attributes:
        name: as the sum's text has it.
        path, element: the submodule that returned it, or the last one on its way, and where it stands in what that
            returned; the path is empty where the block computes it from parameters alone.
        tensor: its value in the run, in the shape in which it multiplies; a matrix where it mixes lanes.
    """

    name: str
    path: str
    element: Element
    tensor: torch.Tensor


@dataclass
class Assembly:
    """One block's sum as it is put together.

    Attributes:
        block: the native block.
        terms: the expressions that are added, in the order they were met.
        gates: name -> gate; the names are provisional until :func:`named`.
    """

    block: torch.nn.Module
    terms: list[Expression] = field(default_factory=list)
    gates: dict[str, Gate] = field(default_factory=dict)
    connections: set[str] = field(default_factory=set)
    """Submodules that return gates: they connect sublayers to the stream and are none themselves."""
    _nodes: dict[int, Node] = field(default_factory=dict)

    @property
    def points(self) -> frozenset[int]:
        """The expressions in the sum, by identity: the stream on its way through the block, and the terms."""
        return frozenset(self._nodes)

    def node(self, expression: Expression) -> Node:
        """The node of an expression; one expression has one node."""
        known = self._nodes.get(id(expression))
        if known is None:
            known = self._nodes[id(expression)] = self._build(expression)
        return known

    def _build(self, expression: Expression) -> Node:
        match expression:
            case Stream():
                return StreamNode()
            case Opaque(name, "parameter" | "buffer" as kind):
                return ParameterNode(Factor(name, kind))
            case Leaf() if carries_stream(expression) and expression.input is not None:
                return NormNode(self.node(expression.input), expression.path)
            case Product(of, factor, used, axis):
                return self._product(of, self._factor(factor, used), axis)
            case Sum(left, right):
                between = self._interpolation(left, right)
                return between or SumNode(self.node(left), self.node(right))
            case Made(operation, operands) if carries_stream(expression):
                return self._followed(expression, operation, operands)
            case _:
                return self._term(expression)

    def _product(self, of: Expression, factor: Factor, axis: int | None) -> Node:
        inner = self.node(of)
        return ProductNode(inner, factor) if axis is None else OuterNode(inner, factor, axis)

    def _interpolation(self, left: Expression, right: Expression) -> Node | None:
        """``h + rate * (a - h)`` is what lies between ``h`` and ``a``."""
        match right:
            case Product(Sum(toward, Product(start, Opaque("-1", "constant"))), rate, used, None) if start is left:
                factor = self._factor(rate, used)
                return InterpolationNode(self.node(left), self.node(toward), factor)
        return None

    def _followed(self, made: Made, operation: str, operands: tuple[Expression, ...]) -> Node:
        match operation, operands, made.detail:
            case "matmul", _, _:
                return self._mix(made, None)
            case "permute", (Made("matmul") as product,), tuple(axes):
                return self._mix(product, axes)
            case "select", (of,), int(lane):
                return LaneNode(self.node(of), lane)
            case "spread", (of,), _:
                return self.node(of)
            case "assign", (of, Sum(Made("select", (base,), slice() as taken), added)), slice(start=int(start)) as put:
                if base is of and taken == put == slice(start, None):
                    return LanesNode(self.node(of), self.node(added), start)
        raise Underivable(
            f"{type(self.block).__name__} takes its stream through an operation ({operation}) that is read as no sum"
        )

    def _mix(self, product: Made, axes: tuple[int, ...] | None) -> Node:
        """A product of the stream's lanes with a matrix, on either side; ``axes`` undo a permutation of the stream."""
        left, right = product.operands
        matrix, of, axis = (right, left, -1) if carries_stream(left) else (left, right, -2)
        transposed = axis == -1  # lanes as a row times the matrix: the matrix transposed, times lanes as a column
        if axes is not None:
            if not (isinstance(of, Made) and of.operation == "permute" and isinstance(of.detail, tuple)):
                raise Underivable(f"{type(self.block).__name__} reorders the axes of its stream")
            axis = of.detail[axis] - len(axes)
            of = of.operands[0]
        held = product.used
        if isinstance(matrix, Made) and matrix.operation == "permute" and held is not None:
            matrix, held, transposed = matrix.operands[0], held.mT, not transposed
        return MixNode(self.node(of), self._factor(matrix, held), axis, transposed)

    def _factor(self, expression: Expression, used: torch.Tensor | None) -> Factor:
        """A factor; a number goes by the one attribute of the block that holds it."""
        match expression:
            case Opaque(name, "constant"):
                return Factor(self._attribute(name), "constant")
            case Opaque(name, "parameter" | "buffer" as held):
                return Factor(name, held)
        if used is None or isinstance(expression, Opaque):
            raise Underivable(f"{type(self.block).__name__} multiplies its stream by a tensor from outside the block")
        kind = "gate" if depends(expression) else "computed"
        source = self._source(expression)
        name = f"gate {len(self.gates)}" if kind == "gate" else self._formula(expression)
        path, element = (source.path, source.element) if source is not None and kind == "gate" else ("", ())
        self.gates[name] = Gate(name, path, element, used.detach())
        self.connections.add(path)
        return Factor(name, kind)

    def _attribute(self, name: str) -> str:
        if name == MINUS.name:
            return name
        holders = [key for key, held in vars(self.block).items() if type(held) is float and f"{held:g}" == name]
        return holders[0] if len(holders) == 1 else name

    def _source(self, expression: Expression) -> Leaf | None:
        """The submodule output that a gate is, or is computed from."""
        found = [each for each in every_expression(expression) if isinstance(each, Leaf)]
        return max(found, key=lambda leaf: leaf.order, default=None)

    def _formula(self, expression: Expression) -> str:
        """What is computed from parameters and numbers, in words."""
        match expression:
            case Opaque(name, "constant"):
                return self._attribute(name)
            case Opaque(name):
                return name
            case Made("mul" | "add" | "sub" as operation, (left, right)):
                sign = {"mul": "*", "add": "+", "sub": "-"}[operation]
                return f"{self._formula(left)} {sign} {self._formula(right)}"
            case Made(operation, operands):
                inner = ", ".join(self._formula(operand) for operand in operands)
                return f"{operation.strip('_')}({inner})"
            case _:
                return "?"

    def _term(self, expression: Expression) -> Node:
        if not depends(expression):
            raise Underivable(
                f"{type(self.block).__name__} adds a tensor to the stream that is not made from its input"
            )
        self.terms.append(expression)
        return TermNode(len(self.terms) - 1)


def ordered(tree: Node, order: list[int]) -> Node:
    """The tree with its terms at the places that ``order`` gives them, and each sum written with the stream first, then
    its terms in forward order.
    """

    def change(node: Node) -> Node:
        match node:
            case TermNode(place):
                return TermNode(order.index(place))
            case SumNode(left, right) if _comes_first(right, left) and not _is_taken_off(right):
                return SumNode(right, left)
            case _:
                return node

    return rebuilt(tree, change)


def _comes_first(left: Node, right: Node) -> bool:
    """The stream before anything, then terms in forward order; of equals the simpler."""

    def key(node: Node) -> tuple[bool, int, int]:
        size = len(list(every(node)))
        with_stream = has_stream(node)
        return not with_stream, min(places(node), default=-1 if with_stream else 1000), size

    return key(left) < key(right)


def _is_taken_off(node: Node) -> bool:
    return isinstance(node, ProductNode) and node.factor == MINUS


def named(tree: Node, gates: dict[str, Gate], prefixes: list[str]) -> tuple[Node, dict[str, Gate]]:
    """The tree with its gates named by what they do and for whom, and its shared parts named.

    ``attention_post`` spreads attention's contribution over the lanes, ``attention_comb`` mixes the lanes that it is
    added to, ``attention_gate`` multiplies it; without a prefix where a gate belongs to no one contribution.

    Args:
        prefixes: for each term `attention`, `mlp` or `branch`.
    """
    roles: dict[str, str] = {}

    def note(factor: Factor, role: str, around: Node) -> None:
        if factor.kind == "gate" and factor.name not in roles:
            own = places(around)
            prefix = f"{prefixes[next(iter(own))]}_" if len(own) == 1 else ""
            taken = sum(name.split("#")[0] == prefix + role for name in roles.values())
            roles[factor.name] = f"{prefix}{role}" + (f"#{taken + 1}" if taken else "")

    for node in every(tree):
        match node:
            case SumNode(MixNode(_, factor), other) | SumNode(other, MixNode(_, factor)):
                note(factor, "comb", other)
            case OuterNode(of, factor):
                note(factor, "post", of)
            case ProductNode(of, factor):
                note(factor, "gate", of)
            case InterpolationNode(_, toward, factor):
                note(factor, "gate", toward)
    final = {old: new.replace("#", "_") for old, new in roles.items()}

    def change(node: Node) -> Node:
        match node:
            case OuterNode(of, factor, axis):
                return OuterNode(of, _renamed(factor, final), axis)
            case MixNode(of, factor, axis, transposed):
                return MixNode(of, _renamed(factor, final), axis, transposed)
            case ProductNode(of, factor):
                return ProductNode(of, _renamed(factor, final))
            case InterpolationNode(of, toward, rate):
                return InterpolationNode(of, toward, _renamed(rate, final))
            case _:
                return node

    kept = {}
    for old, gate in gates.items():
        name = final.get(old, old)
        kept[name] = Gate(name, gate.path, gate.element, gate.tensor)
    return _sharing(rebuilt(tree, change)), kept


def _renamed(factor: Factor, names: dict[str, str]) -> Factor:
    return Factor(names.get(factor.name, factor.name), factor.kind)


def _sharing(tree: Node) -> Node:
    """The tree with the parts named that stand in it several times, the stream among their terms: the largest of them,
    as nothing in them then needs a name of its own.
    """
    counts = Counter(node for node in every(tree) if isinstance(node, (SumNode, MixNode)) and has_stream(node))
    shared = [node for node, count in counts.items() if count > 1]
    outer = [node for node in shared if not any(node is not other and node in set(every(other)) for other in shared)]
    names = {node: "mixed" + (f"_{place + 1}" if place else "") for place, node in enumerate(outer)}

    def change(node: Node) -> Node:
        return SharedNode(node, names[node]) if node in names else node

    return rebuilt(tree, change) if names else tree
