"""What no run shows of a family, for a record: title, its module's docstring and constants, the list of checkpoints.

A family without a module has a title and a list, and no words of its own.
"""

from __future__ import annotations

import ast
import inspect
from types import ModuleType
from typing import Any

from .. import registry, store
from ..checkpoints import Target, missing, targets
from ..schema import About, Declared, ListedCheckpoint

NOT_SHOWN = frozenset({"TITLE", "CHECKPOINTS", "TWINS"})


def about(family: Any, name: str, subtitle: str) -> About:
    """What the page shows of a family.

    Args:
        family: its module; of a family without one, what stands in for it, of which nothing is shown.
        name: the family's name.
    """
    known = registry.get(name)
    module = family if isinstance(family, ModuleType) else None
    return About(
        title=known.title,
        subtitle=subtitle,
        module=module.__name__ if module else "",
        doc=(inspect.getdoc(module) or "") if module else "",
        declared=_declared(inspect.getsource(module)) if module else [],
        checkpoints=listed(name, known.checkpoints),
    )


def listed(family: str, order: tuple[str, ...]) -> list[ListedCheckpoint]:
    """The page's selector: published checkpoints in the module's order, then the twins."""
    known = {target.id: target for target in targets(family)}
    absent = dict(missing(family))
    found = [
        _entry(known[name]) if name in known else _missing(name, absent[name])
        for name in order
        if name in known or name in absent
    ]
    found += [_entry(target) for target in known.values() if target.id not in order and target.kind != "tiny"]
    return found + [_entry(target) for target in known.values() if target.kind == "tiny"]


def _entry(target: Target) -> ListedCheckpoint:
    """One entry; a record of real weights counts as such also where those weights are not installed."""
    kept = target.kind == "config" and store.is_of_weights(store.record_path(target.family, target.id))
    kind = "weights" if kept else target.kind
    return ListedCheckpoint(id=target.id, kind=kind, file=target.id.replace("/", "--"), reason=None)


def _missing(name: str, reason: str) -> ListedCheckpoint:
    return ListedCheckpoint(id=name, kind="missing", file=None, reason=reason)


def _declared(source: str) -> list[Declared]:
    """Public constants and functions of the module, with the string that follows a constant as its documentation."""
    found = []
    body = ast.parse(source).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        doc = _string(after)
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if (
                isinstance(target, ast.Name)
                and target.id.isupper()
                and target.id not in NOT_SHOWN
                and node.value is not None
            ):
                found.append(Declared(name=target.id, value=ast.get_source_segment(source, node.value) or "", doc=doc))
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            signature = f"{ast.unparse(node.args)}"
            returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            found.append(Declared(name=node.name, value=f"({signature}){returns}", doc=ast.get_docstring(node)))
    return found


def _string(node: ast.stmt | None) -> str | None:
    """The text of a statement that is nothing but a string."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value
    return None
