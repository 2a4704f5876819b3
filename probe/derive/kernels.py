"""The function that runs a mixer's recurrence, told by its parameters, with what it took and gave.

transformers keeps such functions apart, because a fused kernel may stand in for each of them: their parameters' names
are the kernels' own, the same in every family.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from types import FunctionType

import torch

from .sites import Recording, Site

KINDS = {
    "delta": {"query", "key", "value", "g", "beta"},
    "mlstm": {"query", "key", "value", "igate", "fgate"},
    "scan": {"hidden_states", "dt", "A", "B", "C"},
    "wkv": {"time_decay", "time_first", "key", "value"},
    "lru": {"hidden_states", "recurrent_gate", "reset"},
}
"""The parameters that tell what a function computes: a (gated) delta rule, an mLSTM, a state-space scan, RWKV's
weighted average, a linear recurrent unit."""

CHOICE = {"package", "func_name", "is_new_implementation", "implementation", "applicable_params", "torch_function"}
"""What a function of transformers closes over that runs another package's in its place where it can."""

CONVOLUTION = {"hidden_states", "weight", "activation"}
"""Those of a causal convolution over the tokens."""


@dataclass(frozen=True)
class StandIn:
    """Code of another package that transformers runs in a function's place where it can import it.

    Attributes:
        runs: whether it does here.
    """

    package: str
    function: str
    runs: bool


@dataclass
class Call:
    """A function that a mixer calls, once or once for each head.

    Attributes:
        kind: a key of :data:`KINDS`, or ``convolution``.
        name: of the function; of the module's class where a module does its work.
        first: the first site of its inputs.
        arguments: the tensors it took, one a call, by parameter.
        results: the sites of what it gave, in their order, each with one site a call.
        runs: how often it was called in each call of the block.
        fused: whether other code than transformers' own ran.
        chunk: how many tokens it takes at once by default; None where it has no such parameter.
        stand_in: what may run in the function's place; None where nothing may.
    """

    kind: str
    name: str
    first: Site
    arguments: dict[str, list[Site]] = field(default_factory=dict)
    results: list[list[Site]] = field(default_factory=list)
    runs: int = 1
    fused: bool = False
    chunk: int | None = None
    stand_in: StandIn | None = None

    def tensors(self, parameter: str) -> list[torch.Tensor]:
        return [site.tensor for site in self.arguments.get(parameter, [])]

    def inside(self, sites: list[Site]) -> list[Site]:
        """The operations within the function, of the sites of its mixer."""
        depth = len(self.first.steps)
        if not depth:
            return [site for site in sites if site.module == self.first.module and site.steps]
        at = (self.first.module, self.first.steps)
        return [s for s in sites if len(s.steps) > depth and (s.module, s.steps[:depth]) == at]


def recurrence(model: torch.nn.Module, recording: Recording, path: str) -> Call | None:
    """The outermost function below a module that runs a recurrence."""
    return next(_calls(model, recording, path, KINDS), None)


def convolutions(model: torch.nn.Module, recording: Recording, path: str) -> list[Call]:
    """The outermost functions below a module that convolve over the tokens."""
    found: list[Call] = []
    for call in _calls(model, recording, path, {"convolution": CONVOLUTION}):
        if not any(call.first in outer.inside(recording.below(path)) for outer in found):
            found.append(call)
    return found


def _calls(model: torch.nn.Module, recording: Recording, path: str, kinds: dict[str, set[str]]) -> Iterator[Call]:
    places = set()
    for site in recording.below(path):
        if site.side != "inputs" or site.place in places:
            continue
        places.add(site.place)
        function: Callable[..., object] = site.called if site.steps else type(model.get_submodule(site.module)).forward
        names = parameters(function)
        names = names if site.steps else names[1:]
        kind = next((kind for kind, wanted in kinds.items() if wanted <= set(names)), None)
        if kind is not None:
            yield _call(model, recording, path, site, kind, names)


def _call(
    model: torch.nn.Module, recording: Recording, path: str, site: Site, kind: str, names: tuple[str, ...]
) -> Call:
    done_by = site.called if site.steps else type(model.get_submodule(site.module))
    name = getattr(done_by, "__name__", type(done_by).__name__)
    call = Call(kind, name, site, runs=max(1, recording.calls[site.module, site.steps] // recording.repeats))
    for other in recording.below(path):
        if (other.module, other.steps) != (site.module, site.steps):
            continue
        if other.side == "output":
            call.results.append(recording.passes(other)[: call.runs])
        elif other.index[0] == 1 or int(other.index[1]) < len(names):
            name_of = str(other.index[1]) if other.index[0] == 1 else names[int(other.index[1])]
            call.arguments[name_of] = recording.passes(other)[: call.runs]
    call.stand_in = stand_in(site.called) if site.steps else None
    call.chunk = _default(site.called, "chunk_size") if site.steps else None
    call.fused = bool(site.steps) and not all(_native(function) for function in _bodies(recording, path, call))
    return call


def _bodies(recording: Recording, path: str, call: Call) -> list[Callable[..., object]]:
    """The function and, where it is a wrapper that chooses an implementation, what it chose."""
    depth = len(call.first.steps) + 1
    inner = [s for s in call.inside(recording.below(path)) if len(s.steps) == depth and s.called is not None]
    return [call.first.called, *(s.called for s in inner if s.steps[-1].startswith("implementation"))]


def stand_in(function: object) -> StandIn | None:
    """What may run in a function's place, as transformers' choice between the two holds it, made at import."""
    held = chooser(function)
    if held is None:
        return None
    of = inspect.getclosurevars(held).nonlocals
    return StandIn(str(of["package"]), str(of["func_name"]), bool(of["is_new_implementation"]))


def chooser(function: object) -> FunctionType | None:
    """The wrapper of transformers that closes over the choice, around or inside a function; None without one."""
    while function is not None:
        if isinstance(function, FunctionType) and {*function.__code__.co_freevars} >= CHOICE:
            return function
        function = getattr(function, "__wrapped__", None)
    return None


def _native(function: Callable[..., object]) -> bool:
    return str(getattr(function, "__module__", "")).startswith("transformers.")


@cache
def parameters(function: Callable[..., object]) -> tuple[str, ...]:
    """Names of a function's parameters; none where it does not say."""
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def _default(function: Callable[..., object], name: str) -> int | None:
    found = inspect.signature(function).parameters.get(name)
    return found.default if found is not None and isinstance(found.default, int) else None
