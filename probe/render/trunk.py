"""What the stream itself goes through on its way through a block, read off the block's sum."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

from probe.schema import Shape

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
    try:
        whole = shape.identity.partition(" == ")[0].replace(f"vision.{STREAM}", STREAM)
        node: ast.AST = ast.parse(whole.replace(STREAM, "stream"), mode="eval").body
    except SyntaxError:
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


def _holds_stream(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Name) and part.id == "stream" for part in ast.walk(node))


def _count(node: ast.AST, names: set[str]) -> int:
    parts = ast.walk(node)
    return sum(
        isinstance(part, ast.Attribute) and part.attr in names or isinstance(part, ast.Name) and part.id in names
        for part in parts
    )
