"""Runs the snippets of a page as a reader would, and compares each with what the project's own name reads."""

from __future__ import annotations

import linecache
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch

from probe.render.know.subject import Subject
from probe.render.know.terms import terms
from probe.render.recipes import FORMS, Recipe, recipes
from probe.render.recipes.setup import setup
from probe.render.standing import Standing
from probe.schema import Record, Value

CLOSE = 1e-5
"""Largest difference, relative to the value's own size, at which two runs of one twin gave the same."""

_numbers = count()


def execute(code: str, namespace: dict[str, Any]) -> None:
    """Run code whose source nnsight can read back."""
    name = f"<snippet {next(_numbers)}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    exec(compile(code, name, "exec"), namespace)


def same(found: Any, wanted: Any) -> bool:
    if not isinstance(wanted, torch.Tensor):
        return bool(found == wanted)
    if not isinstance(found, torch.Tensor) or found.shape != wanted.shape:
        return False
    found, wanted = (tensor.float().nan_to_num(posinf=0, neginf=0) for tensor in (found, wanted))
    return bool((found - wanted).abs().max() <= CLOSE * max(1.0, float(wanted.abs().clamp(max=1e6).max())))


@dataclass
class Page:
    """A twin's page: its set-ups, run once a form, and what came of its snippets."""

    record: Record
    namespaces: dict[str, dict[str, Any]] = field(default_factory=dict)
    ran: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for form in FORMS:
            self.namespaces[form] = {}
            execute(setup(self.record, form), self.namespaces[form])
        vector = self.namespaces["names"]["vector"]
        for namespace in self.namespaces.values():
            namespace["vector"] = vector

    def snippets(self) -> list[tuple[Value, list[Recipe]]]:
        """Every value with its recipes, the vision encoder's last."""
        standing = Standing(self.record, None)
        added = {(term.value.host, term.value.name) for term in terms(Subject(standing))}
        rows = [*self.record.values, *(self.record.vision.values if self.record.vision else [])]
        return [(row, recipes(standing, row, (row.host, row.name) in added)) for row in rows]

    def run(self) -> None:
        for value, forms in self.snippets():
            wanted: dict[str, Any] = {}
            for recipe in forms:
                for kind, code, result in (("read", recipe.read, "value"), ("edit", recipe.edit, "logits")):
                    if code is not None:
                        self._one(value, recipe.form, kind, code, result, wanted)

    def _one(self, value: Value, form: str, kind: str, code: str, result: str, wanted: dict[str, Any]) -> None:
        namespace = self.namespaces[form]
        namespace.pop(result, None)
        where = f"{value.host}.{value.name} ({value.module}), {form}, {kind}"
        try:
            execute(code, namespace)
        except Exception as error:  # a snippet may fail in any way; all that fail are told together
            self.wrong.append(f"{where}: {type(error).__name__}: {error}")
            return
        if form == "names":
            wanted[kind] = namespace[result]
        elif kind not in wanted or not same(namespace[result], wanted[kind]):
            self.wrong.append(f"{where}: not what the project's name gives")
            return
        self.ran[form, kind] += 1
