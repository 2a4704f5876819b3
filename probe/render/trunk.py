"""What the stream itself goes through on its way through a block, read off the block's sum."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

from probe.schema import Shape, Sublayer

STREAM = "layers[i].input"


@dataclass(frozen=True)
class Met:
    """A norm or another module that takes the stream, or what multiplies it.

    Attributes:
        name: the module's, below the block, or the factor as the sum writes it.
        behind: how many contributions the stream has taken up by then.
    """

    kind: Literal["module", "factor"]
    name: str
    behind: int


def met(shape: Shape) -> list[Met]:
    """What the stream meets beside adds, in order; empty where the sum is no arithmetic of single streams."""
    node = _sum(shape)
    if node is None:
        return []
    added = {sub.contribution for sub in shape.sublayers}
    found: list[Met] = []
    while not isinstance(node, ast.Name):
        inner = [child for child in ast.iter_child_nodes(node) if _holds_stream(child)]
        if not inner:
            return []
        if isinstance(node, ast.Call):
            found.append(Met("module", ast.unparse(node.func), _count(inner[0], added)))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            other = node.right if inner[0] is node.left else node.left
            found.append(Met("factor", ast.unparse(other), _count(inner[0], added)))
        node = inner[0]
    return found[::-1]


def shared(shape: Shape, sublayer: Sublayer) -> list[str]:
    """What multiplies a contribution together with others: the ``c`` of ``stream + (one.output + other.output) * c``;
    empty where the sum is no arithmetic, or multiplies the stream as well.
    """
    names = {sublayer.contribution, f"{sublayer.host}.{sublayer.contribution}"}
    if any(each.kind == "factor" for each in met(shape)):
        return []
    node = _sum(shape)
    found: list[str] = []
    while node is not None and ast.unparse(node) not in names:
        inner = next((child for child in ast.iter_child_nodes(node) if _holds(child, names)), None)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            found.append(ast.unparse(node.right if inner is node.left else node.left))
        node = inner
    return found if node is not None else []


def _sum(shape: Shape) -> ast.AST | None:
    """The left side of a block's sum, in which the stream is ``stream``; None where it is no expression."""
    whole = shape.identity.partition(" == ")[0].replace(f"vision.{STREAM}", STREAM)
    try:
        return ast.parse(whole.replace(STREAM, "stream"), mode="eval").body
    except SyntaxError:
        return None


def _holds(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(part, ast.Attribute | ast.Name) and ast.unparse(part) in names for part in ast.walk(node))


def _holds_stream(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Name) and part.id == "stream" for part in ast.walk(node))


def _count(node: ast.AST, names: set[str]) -> int:
    parts = ast.walk(node)
    return sum(
        isinstance(part, ast.Attribute) and part.attr in names or isinstance(part, ast.Name) and part.id in names
        for part in parts
    )
