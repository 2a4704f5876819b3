"""A family module's literals, read without importing it."""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from probe.errors import ProbeError

FAMILIES = Path(__file__).parents[2] / "families"


@dataclass(frozen=True)
class Declared:
    """The literals that open a family module."""

    title: str
    checkpoints: tuple[str, ...]
    twins: dict[str, dict[str, Any]]


def families() -> list[str]:
    """model_types that have a family module."""
    return sorted(p.stem for p in FAMILIES.glob("*.py") if not p.stem.startswith("_"))


@cache
def declared(family: str) -> Declared:
    """A family's literals. Raises: ProbeError naming the nearest families if there is no such family."""
    known = families()
    if family not in known:
        near = difflib.get_close_matches(family, known, 3, 0.5) or known
        raise ProbeError(f"There is no family {family!r}; did you mean {' or '.join(near)}?")
    found: dict[str, Any] = {}
    for node in ast.parse((FAMILIES / f"{family}.py").read_text()).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(target, ast.Name) and target.id in ("TITLE", "CHECKPOINTS", "TWINS") and node.value is not None:
            found[target.id] = ast.literal_eval(node.value)
    return Declared(found["TITLE"], found["CHECKPOINTS"], found["TWINS"])
