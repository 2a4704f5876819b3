"""The families and the checkpoints they list, read from ``families/*.py`` without importing them.

A family is a module whose name has no leading underscore and which assigns three literals: ``TITLE`` (text),
``CHECKPOINTS`` (Hub ids in the page's order) and ``TWINS`` (a dict from twin name to its options).
"""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.errors import ProbeError

FAMILIES = Path(__file__).resolve().parent.parent / "families"


@dataclass(frozen=True)
class Family:
    """What a family module declares.

    Attributes:
        name: model_type of the text model; the module's name.
        doc: the module's docstring, empty where it has none.
        path: the module's file.
    """

    name: str
    title: str
    checkpoints: tuple[str, ...]
    twins: dict[str, dict[str, Any]]
    doc: str
    path: Path


def names() -> list[str]:
    """The families' names, sorted; reads file names only."""
    return sorted(path.stem for path in FAMILIES.glob("[!_.]*.py"))


def families() -> list[Family]:
    return [_read(FAMILIES / f"{name}.py") for name in names()]


def get(name: str) -> Family:
    """One family. Raises ProbeError with the nearest names where there is none of that name."""
    known = names()
    if name not in known:
        raise ProbeError(f"There is no family {name!r}{nearest(name, known)}; `python -m probe list` shows them all.")
    return _read(FAMILIES / f"{name}.py")


def nearest(word: str, known: list[str]) -> str:
    """`` (nearest: …)`` for an unknown word; empty where nothing is near."""
    close = difflib.get_close_matches(word.lower(), known, n=3, cutoff=0.5)
    close += [other for other in known if word and other.startswith(word.lower()) and other not in close]
    return f" (nearest: {', '.join(close[:3])})" if close else ""


def _read(path: Path) -> Family:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    except SyntaxError as error:
        raise ProbeError(f"The family module {path} does not parse (line {error.lineno}: {error.msg}).") from error
    found: dict[str, Any] = {}
    for node in tree.body:
        for name, value in _assigned(node):
            if name in ("TITLE", "CHECKPOINTS", "TWINS"):
                found[name] = _literal(path, name, value)
    if missing := [name for name in ("TITLE", "CHECKPOINTS", "TWINS") if name not in found]:
        raise ProbeError(f"The family module {path} does not declare {', '.join(missing)}.")
    return Family(
        name=path.stem,
        title=found["TITLE"],
        checkpoints=tuple(found["CHECKPOINTS"]),
        twins=found["TWINS"],
        doc=ast.get_docstring(tree) or "",
        path=path,
    )


def _assigned(node: ast.stmt) -> list[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        return [(target.id, node.value) for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        return [(node.target.id, node.value)]
    return []


def _literal(path: Path, name: str, value: ast.expr) -> Any:
    expected = {"TITLE": (str, "a text"), "CHECKPOINTS": (tuple | list, "a tuple of ids"), "TWINS": (dict, "a dict")}
    kind, words = expected[name]
    try:
        literal = ast.literal_eval(value)
    except ValueError:
        literal = None
    if not isinstance(literal, kind):
        raise ProbeError(f"The family module {path} must write {name} as {words}, as a literal (line {value.lineno}).")
    return literal
