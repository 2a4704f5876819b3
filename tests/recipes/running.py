"""Runs the snippets of a page as a reader would, and compares each with what the project's own name reads.

A forward pass stops before the next module where nothing of the snippet is left in the model: its trace has come to its
end, or its hook has kept a value and is removed. What would follow is the untouched model's own forward.
"""

from __future__ import annotations

import linecache
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from nnsight.intervention.envoy import Envoy
from nnsight.intervention.interleaver import EarlyStopException

from probe.render.recipes import FORMS, Recipe, recipes
from probe.render.recipes.setup import setup
from probe.render.recipes.slices import Slice, slices
from probe.render.standing import Standing
from probe.schema import Record, Value

CLOSE = 1e-5
"""Largest difference, relative to the value's own size, at which two runs of one twin gave the same."""

UNSEEN = {"blt": "its last patch is of bytes still to come, which no logit of the prompt sees"}
"""Families whose logits an edit at the last position leaves as they are, and why."""

_numbers = count()


def execute(code: str, namespace: dict[str, Any]) -> None:
    """Run code whose source nnsight can read back."""
    name = f"<snippet {next(_numbers)}>"
    namespace.pop("keep", None)  # an earlier snippet's
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    exec(compile(code, name, "exec"), namespace)


def stop_when_done(namespace: dict[str, Any]) -> None:
    """Let the forwards of a namespace's model stop before a module where the snippet has nothing left to do.

    Some modules are of all models of a class, so that another model's forward calls them too: it is not stopped.
    """
    model = namespace["model"]
    traced = isinstance(model, Envoy)
    module = model._module if traced else model
    forward, running = module.forward, False

    def done() -> bool:
        if traced:
            interleaver = model.interleaver
            return interleaver.interleaving and not any(worker.alive for worker in interleaver.mediators)
        hook = namespace["hook"] if running and hasattr(namespace.get("keep"), "value") else None
        return hook is not None and hook.id not in (hook.hooks_dict_ref() or ())

    def before(*_: Any) -> None:
        if done():
            raise EarlyStopException

    def until_done(*args: Any, **kwargs: Any) -> Any:
        nonlocal running
        running = True
        try:
            return forward(*args, **kwargs)
        except EarlyStopException:
            return None
        finally:
            running = False

    for each in module.modules():
        each.register_forward_pre_hook(before)
    if not traced:  # nnsight catches by itself what stops it
        module.forward = until_done


def same(found: Any, wanted: Any) -> bool:
    if not isinstance(wanted, torch.Tensor):
        return bool(found == wanted)
    if not isinstance(found, torch.Tensor) or found.shape != wanted.shape:
        return False
    found, wanted = (tensor.float().nan_to_num(posinf=0, neginf=0) for tensor in (found, wanted))
    return bool((found - wanted).abs().max() <= CLOSE * max(1.0, float(wanted.abs().clamp(max=1e6).max())))


def snippets(standing: Standing) -> list[tuple[Value, list[Recipe]]]:
    """Every value of a page with its recipes, the vision encoder's last."""
    record = standing.record
    rows = [*record.values, *(record.vision.values if record.vision else [])]
    return [(row, recipes(standing, row)) for row in rows]


def installed(record: Record) -> Record:
    """A record whose set-up loads real weights from where they are installed, as it builds a twin, not from the Hub."""
    return record.model_copy(update={"checkpoint": record.checkpoint.model_copy(update={"kind": "tiny"})})


@dataclass
class Page:
    """A page: its set-ups, run once a form, and what came of its snippets."""

    record: Record
    namespaces: dict[str, dict[str, Any]] = field(default_factory=dict)
    ran: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    unedited: torch.Tensor = field(init=False)
    _untouched: dict[str, torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        for form in FORMS:
            self.namespaces[form] = {}
            execute(setup(installed(self.record), form), self.namespaces[form])
        drawn = {name: held for name, held in self.namespaces["names"].items() if name.endswith("vector")}
        for namespace in self.namespaces.values():
            namespace.update(drawn)
        plain = self.namespaces["pytorch"]
        with torch.no_grad():
            self.unedited = plain["model"](**plain["inputs"]).logits
        paths = {found.path for _, found in self.slices()}
        self._untouched = {path: plain["model"].get_parameter(path).detach().clone() for path in paths}
        for namespace in self.namespaces.values():
            stop_when_done(namespace)

    def snippets(self) -> list[tuple[Value, list[Recipe]]]:
        """Every value with its recipes, the vision encoder's last."""
        return snippets(Standing(self.record, None))

    def slices(self) -> list[tuple[Value, Slice]]:
        """Every part of a value, a head or an expert, that the page has a snippet for."""
        standing = Standing(self.record, None)
        return [(value, found) for value in self.record.values for found in slices(standing, value)]

    def run(self) -> None:
        for value, forms in self.snippets():
            wanted: dict[str, Any] = {}
            for recipe in forms:
                for kind, code, result in (("read", recipe.read, "value"), ("edit", recipe.edit, "logits")):
                    if code is not None:
                        self._one(value, recipe.form, kind, code, result, wanted)

        self._run_slices()

    def _run_slices(self) -> None:
        """Every snippet that takes out a head or an expert, which must put back what it took."""
        for value, found in self.slices():
            wanted: dict[str, Any] = {}
            for form, code in found.code.items():
                self._one(value, form, found.what, code, "logits", wanted)
                weight = self.namespaces[form].pop("weight", None)
                if weight is not None and not torch.equal(weight, self._untouched[found.path]):
                    self.wrong.append(f"{found.path}, {form}: the weight is not as it was")

    def _one(self, value: Value, form: str, kind: str, code: str, result: str, wanted: dict[str, Any]) -> None:
        namespace = self.namespaces[form]
        namespace.pop(result, None)
        where = f"{value.host}.{value.name} ({value.module}), {form}, {kind}"
        try:
            execute(code, namespace)
        except Exception as error:  # a snippet may fail in any way; all that fail are told together
            self.wrong.append(f"{where}: {type(error).__name__}: {error}")
            return
        if form == "names" and kind == "edit" and self._unmoved(namespace[result]):
            self.wrong.append(f"{where}: the logits are {'others' if self.record.family in UNSEEN else 'as they were'}")
            return
        if form == "names":
            wanted[kind] = namespace[result]
        elif kind not in wanted or not same(namespace[result], wanted[kind]):
            self.wrong.append(f"{where}: not what the project's name gives")
            return
        self.ran[form, kind] += 1

    def _unmoved(self, logits: torch.Tensor) -> bool:
        """Whether an edit left the logits, or moved them where it is known to leave them."""
        return torch.equal(logits, self.unedited) != (self.record.family in UNSEEN)
