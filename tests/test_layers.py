"""Imports between the probe's modules and packages go one way only, and no record depends on what a probe leaves out of
its fingerprint. Read from the source; nothing is imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from probe import fingerprint
from tests.conftest import ROOT

Graph = dict[str, set[str]]


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def _modules() -> dict[str, Path]:
    return {_name(path): path for path in sorted((ROOT / "probe").rglob("*.py"))}


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """Everything below a node but what stands there for types alone."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from _run(child)


def _imported(module: str, path: Path) -> Iterator[str]:
    """What a module's imports name, inside functions too: modules, and members of modules."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in _run(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


@cache
def _graph() -> Graph:
    """Module -> the modules of ours that it imports."""
    known = _modules()
    found: Graph = {}
    for module, path in known.items():
        named = (name if name in known else name.rpartition(".")[0] for name in _imported(module, path))
        found[module] = {name for name in named if name in known and name != module}
    return found


def _cycle(graph: Graph) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _part(module: str) -> str:
    """The package right below the probe's, or the module there."""
    return ".".join(module.split(".")[:2])


def test_no_module_imports_one_that_imports_it() -> None:
    assert {"probe.record.findings", "probe.experiments", "probe.measure.run"} <= set(_graph())
    assert _cycle(_graph()) == []


def test_no_package_imports_one_that_imports_it() -> None:
    packages: Graph = {}
    for module, imported in _graph().items():
        here = _part(module)
        packages.setdefault(here, set()).update({_part(other) for other in imported} - {here, "probe"})
    assert packages["probe.record"] >= {"probe.experiments", "probe.measure"}
    assert _cycle(packages) == []


def test_what_decides_a_record_imports_nothing_that_a_fingerprint_leaves_out() -> None:
    """But for the list of the installed decoders, which the package versions in the fingerprint decide."""
    light = {f"probe.{name.removesuffix('.py')}" for name in fingerprint._LIGHT}
    reached: set[str] = set()
    waiting = ["probe.record"]
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += _graph()[module]
    assert {module for module in reached if _part(module) in light} == {"probe.installed"}
