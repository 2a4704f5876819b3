"""The functions that an MLP's neurons pass: its activation modules, and what its arithmetic does without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...instruments.extra import once
from ...instruments.listening import listening
from ...measure.run import Run
from ...standard.trace import Key
from ...wiring.anatomy import Term
from ..answers import tolerance

KNOWN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "relu": torch.relu,
    "relu_squared": lambda x: torch.relu(x).square(),
}
"""Functions that a grid can tell apart."""

GATES = frozenset({"silu", "gelu", "relu", "relu_"})
"""Functions of torch that are activations."""

SQUARES = frozenset({"square", "pow", "__pow__", "mul", "__mul__"})
"""Functions of torch that can square."""


@once
def feeding(run: Run, index: int) -> list[torch.nn.Module]:
    """The modules that compute what a block adds other than by mixing positions: their own, or those children of the
    block that are part of no attention and no mixer where it computes it itself.
    """
    block = run.text.envoys[index]._module
    terms = run.text.anatomy[index].terms
    feeds = _feeds(run, index)
    if all(term.hosts for term in feeds):
        return [block.get_submodule(host) for term in feeds for host in term.hosts]
    mixing = {host.split(".")[0] for term in terms if term.kind in ("attention", "mixer") for host in term.hosts}
    return [child for name, child in block.named_children() if name not in mixing]


def _feeds(run: Run, index: int) -> list[Term]:
    return [term for term in run.text.anatomy[index].terms if term.kind not in ("attention", "mixer")]


def activation_modules(run: Run, index: int) -> list[torch.nn.Module]:
    """The modules within a block's MLPs that work on each number by itself, do something to it, and were called."""
    called = _watched(run).called
    return [module for module in _candidates(run, index) if id(module) in called]


@once
def _candidates(run: Run, index: int) -> list[torch.nn.Module]:
    every = [module for host in feeding(run, index) for module in _outermost(host, grid(run))]
    routers = _in_routers(run, index)
    return list({id(module): module for module in every if id(module) not in routers}.values())


def _in_routers(run: Run, index: int) -> set[int]:
    """The ids of the modules within a block's routers: what acts there acts on the scores of experts, on no neuron."""
    scoring, taking = _standing(run, index, "router_logits"), _standing(run, index, "expert_indices", "in")
    children = [child for feeds in feeding(run, index) for child in feeds.children()]
    inside = [{id(module) for module in child.modules()} for child in children]
    return {each for ids in inside if ids & scoring and not ids & taking for each in ids}


def _standing(run: Run, index: int, name: str, at: str | None = None) -> set[int]:
    """The ids of the modules at which a block's values of a name stand, at one side where ``at`` gives it."""
    found = set()
    for label, block, host in run.model.hosts():
        value = host.standard_values().get(name)
        if block == index and value is not None and Key(label, block, name) in run.readings:
            path, side, _ = value.location.plain(host, run.model)
            found |= {id(run.model._module.get_submodule(path))} if at in (None, side) else set()
    return found


def _outermost(module: torch.nn.Module, numbers: torch.Tensor) -> list[torch.nn.Module]:
    """The module, or else those within it, that work on each number by itself; one of them may hold another."""
    if _works_on_each(module, numbers):
        return [module]
    return [found for child in module.children() for found in _outermost(child, numbers)]


def grid(run: Run) -> torch.Tensor:
    return torch.linspace(-4, 4, 81, dtype=run.dtype, device=run.model.device)


def _works_on_each(module: torch.nn.Module, numbers: torch.Tensor) -> bool:
    if any(parameter.numel() > 2 for parameter in module.parameters()):
        return False
    try:
        with torch.no_grad():
            whole, part = module(numbers), module(numbers[:40])
    except Exception:
        return False  # a module that takes no plain vector is no activation, however it says so
    if not isinstance(whole, torch.Tensor) or not isinstance(part, torch.Tensor) or whole.shape != numbers.shape:
        return False
    slopes = whole.float().diff()
    bends = float((slopes - slopes[0]).abs().max()) > 1e-3 * float(slopes.abs().max().clamp_min(1e-30))
    return bends and part.shape == (40,) and bool(torch.allclose(whole[:40], part))


def function_of(module: torch.nn.Module, run: Run) -> str:
    """Which of :data:`KNOWN` an activation is, by its values on a grid; `unknown` where it is none."""
    with torch.no_grad():
        return _nearest(_on_the_grid(run), module(grid(run)), run)


@once
def _on_the_grid(run: Run) -> dict[str, torch.Tensor]:
    return _known(grid(run))


def _known(given: torch.Tensor) -> dict[str, torch.Tensor]:
    return {name: known(given.float()) for name, known in KNOWN.items()}


def _named(given: torch.Tensor, values: torch.Tensor, run: Run) -> str:
    return _nearest(_known(given), values, run)


def _nearest(every: dict[str, torch.Tensor], values: torch.Tensor, run: Run) -> str:
    off = {name: float((known - values.float()).abs().max()) for name, known in every.items()}
    name = min(off, key=off.__getitem__)
    return name if off[name] < tolerance(run) * float(values.float().abs().max().clamp_min(1.0)) else "unknown"


@once
def functions(run: Run) -> list[set[str] | None]:
    """For each block which of :data:`KNOWN` its MLPs apply; None where all its contributions mix positions.

    Modules are called on a grid; what an MLP does without a module is seen in one forward, by the values of each
    activation function it calls and of each square it takes of what one gave.
    """
    watch = _watched(run)
    found: list[set[str] | None] = []
    for index in range(len(run.text)):
        if not _feeds(run, index):
            found.append(None)
            continue
        names = {function_of(module, run) for module in activation_modules(run, index)}
        inner = watch.found.get(index, set())
        found.append(names | inner if "relu_squared" in inner or not names else names)
    return found


class _Watch(TorchFunctionMode):
    """Names the activation functions that are called inside the MLPs, and notes the activation modules that are."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.found: dict[int, set[str]] = {}
        self.called: set[int] = set()
        self._run = run
        self._inside: int | None = None
        self._given: tuple[torch.Tensor, torch.Tensor] | None = None
        self._handles: list[Any] = []

    def __enter__(self) -> _Watch:
        candidates = [module for index in range(len(self._run.text)) for module in _candidates(self._run, index)]
        self._handles += [module.register_forward_hook(self._call) for module in candidates]
        for index in range(len(self._run.text)):
            for module in feeding(self._run, index):
                self._handles.append(module.register_forward_pre_hook(self._enter(index)))
                self._handles.append(module.register_forward_hook(self._leave(index), always_call=True))
            block = self._run.text.envoys[index]._module
            self._handles.append(block.register_forward_hook(self._leave(None), always_call=True))
        return self

    def __exit__(self, *exception: Any) -> None:
        for handle in self._handles:
            handle.remove()

    def _call(self, module: torch.nn.Module, *_: Any) -> None:
        self.called.add(id(module))

    def _enter(self, index: int) -> Callable[..., None]:
        def enter(*_: Any) -> None:
            if self._inside is None:
                super(_Watch, self).__enter__()
            self._inside = index

        return enter

    def _leave(self, index: int | None) -> Callable[..., None]:
        """Between modules that the block calls itself, its own functions count too, up to its end."""

        def leave(*_: Any) -> None:
            if self._inside is not None and (index is None or all(term.hosts for term in _feeds(self._run, index))):
                super(_Watch, self).__exit__(None, None, None)
                self._inside = None

        return leave

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name not in GATES and name not in SQUARES:
            return func(*args, **(kwargs or {}))
        before = args[0].detach().clone() if name == "relu_" else args[0] if args else None
        out = func(*args, **(kwargs or {}))
        if self._inside is None or not isinstance(out, torch.Tensor) or not isinstance(before, torch.Tensor):
            return out
        if name in GATES:
            self._note(before, out)
            self._given = before, out
        elif name in SQUARES and self._given is not None and before is self._given[1]:
            squared = out.shape == before.shape and torch.allclose(out, before.square())
            known = _named(self._given[0], out, self._run) if squared else "unknown"
            if known != "unknown":
                self.found[self._inside].discard("relu")
                self.found[self._inside].add(known)
        return out

    def _note(self, given: torch.Tensor, out: torch.Tensor) -> None:
        known = _named(given, out, self._run)
        self.found.setdefault(self._inside or 0, set()).add(known)


_watched = listening(_Watch)

__all__ = ["activation_modules", "function_of", "functions", "grid"]
