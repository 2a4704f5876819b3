"""How each quirk is measured: the docstring and the code of its experiment, read without importing it.

An experiment is a function that an entry ``Quirk(slug, label, about, function, …)`` of a module under
``probe/experiments`` names, directly, as ``wrapper(function)`` or in a lambda.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache

from probe.errors import ProbeError
from probe.store import ROOT

EXPERIMENTS = ROOT / "probe" / "experiments"


@dataclass(frozen=True)
class Method:
    """One experiment.

    Attributes:
        doc: what the function says it does.
        code: its source without the docstring.
        module: the module that it is in, and the function's name.
        order: its place among all experiments.
    """

    slug: str
    label: str
    about: str
    doc: str
    code: str
    module: str
    function: str
    order: int


@cache
def methods() -> dict[tuple[str, str], Method]:
    """Every experiment by slug and by what it is about: ``text`` or ``vision``.

    Raises:
        ProbeError: an entry whose function has no docstring, or is not in its module.
    """
    found: dict[tuple[str, str], Method] = {}
    for path in sorted(EXPERIMENTS.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        for slug, label, about, name in _entries(tree, set(functions)):
            function = functions.get(name)
            doc = ast.get_docstring(function) if function else None
            if function is None or doc is None:
                raise ProbeError(f"The experiment of {slug} in {path.name} has no function {name} with a docstring.")
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            code = _without_docstring(source, function)
            found[slug, about] = Method(slug, label, about, doc, code, module, name, len(found))
    return found


def _entries(tree: ast.Module, functions: set[str]) -> list[tuple[str, str, str, str]]:
    """Slug, label, about and function of every entry."""
    out = []
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Quirk"):
            continue
        texts = [arg.value for arg in node.args[:3] if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        if len(texts) == 3 and len(node.args) > 3:
            out.append((texts[0], texts[1], texts[2], _function(node.args[3], functions)))
    return out


def _function(run: ast.expr, functions: set[str]) -> str:
    """The first function of the module that an expression names; outermost first. Empty where it names none."""
    return next((node.id for node in ast.walk(run) if isinstance(node, ast.Name) and node.id in functions), "")


def _without_docstring(source: str, function: ast.FunctionDef) -> str:
    lines = source.splitlines()
    first = function.body[0]
    kept = lines[function.lineno - 1 : first.lineno - 1] + lines[first.end_lineno or first.lineno : function.end_lineno]
    return "\n".join(kept)
