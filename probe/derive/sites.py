"""Sites: every place of a forward pass that a location can name, with the tensor that stood there.

One forward runs with each module of the blocks replaced by a copy whose operations report what they take and give.
They go by nnsight's names, so a site found here is a location there. Beside them stand the events: the products,
softmaxes, choices and activations that torch itself was asked for, which tell what a tensor is.
"""

from __future__ import annotations

import inspect
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from nnsight.intervention.source import SourceNotAvailable, bind, instrument
from torch.overrides import TorchFunctionMode

from ..values.location import Key

DEPTH = 3
"""How many functions below a module's own forward are looked into."""

WATCHED = frozenset(
    "matmul __matmul__ bmm baddbmm einsum softmax topk linear addmm conv1d scaled_dot_product_attention "
    "gelu silu relu relu_ sigmoid tanh mish softplus leaky_relu hardtanh relu6".split()
)
"""Functions of torch that tell what a tensor is."""


@dataclass(frozen=True, eq=False)
class Site:
    """A place in the forward, and what stood there.

    Attributes:
        module: path of the module from the model.
        steps: the operations, outermost first; none for the module's own input or output.
        side: ``inputs`` or ``output``.
        index: where in that the tensor is; for inputs ``(0, position)`` or ``(1, name)``.
        tensor: a copy.
        order: grows with the forward.
        called: the function that the last operation calls, None for an assignment or a module.
        call: the how-manieth call of the module or operation it is of.
    """

    module: str
    steps: tuple[str, ...]
    side: str
    index: tuple[Key, ...]
    tensor: torch.Tensor
    order: int
    called: Any = None
    call: int = 1

    @property
    def place(self) -> tuple[str, tuple[str, ...], str]:
        return self.module, self.steps, self.side


@dataclass(frozen=True, eq=False)
class Event:
    """A call of a torch function: what went in and came out, and the modules it ran inside of, outermost first."""

    name: str
    inputs: tuple[torch.Tensor, ...]
    output: torch.Tensor
    inside: tuple[str, ...]
    order: int
    extra: torch.Tensor | None = None
    """The second output, of a topk."""


@dataclass
class Recording:
    """What one forward showed."""

    sites: list[Site] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    calls: Counter[tuple[str, tuple[str, ...]]] = field(default_factory=Counter)
    """How often each module or operation ran."""
    repeats: int = 1
    """How often the block that is looked at ran; the sites are those of its first call."""

    def below(self, module: str) -> list[Site]:
        """The sites of a module and what is below it, in the order of the forward, each as it was first passed."""
        return [site for site in self._by_top[module] if site.call == 1 and within(site.module, module)]

    def passes(self, site: Site) -> list[Site]:
        """What stood at a site each time that it was passed."""
        return [found for found in self._by_top[site.module] if found.place == site.place and found.index == site.index]

    def inside(self, module: str) -> list[Event]:
        """The events inside a module, in the order of the forward."""
        return [event for event in self.events if module in event.inside]

    def once(self, site: Site) -> bool:
        """Whether the site is passed once in each call of the block, the only case in which it names one tensor."""
        return all(self.calls[site.module, site.steps[:depth]] == self.repeats for depth in range(len(site.steps) + 1))

    @property
    def _by_top(self) -> Mapping[str, list[Site]]:
        if not hasattr(self, "_index"):
            index: dict[str, list[Site]] = defaultdict(list)
            for site in self.sites:
                parts = site.module.split(".")
                for depth in range(len(parts) + 1):
                    index[".".join(parts[:depth])].append(site)
            self._index = index
        return self._index


def within(path: str, module: str) -> bool:
    return not module or path == module or path.startswith(f"{module}.")


class _Recorder(TorchFunctionMode):
    """Fills a :class:`Recording` while the model runs."""

    def __init__(self) -> None:
        super().__init__()
        self.found = Recording()
        self._order = 0
        self._inside: list[str] = []
        self._quiet = False

    def module(self, path: str, module: torch.nn.Module, *, operations: bool) -> None:
        """Replace a module's forward by one that reports."""
        body = types.MethodType(type(module).forward, module)
        if operations:
            try:
                body, _ = instrument(body, self._op(path, ()))
            except SourceNotAvailable:
                pass

        def forward(_: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            self.found.calls[path, ()] += 1
            self._keep(path, (), "inputs", (args, kwargs))
            self._inside.append(path)
            try:
                output = body(*args, **kwargs)
            finally:
                self._inside.pop()
            self._keep(path, (), "output", output)
            return output

        module.forward = types.MethodType(forward, module)

    def _op(self, path: str, above: tuple[str, ...]) -> Callable[..., Any]:
        def op(location: str, called: Any, *args: Any, **kwargs: Any) -> Any:
            steps = (*above, location.removeprefix("source."))
            self.found.calls[path, steps] += 1
            if called is bind:
                self._keep(path, steps, "output", args[0])
                return args[0]
            self._keep(path, steps, "inputs", (args, kwargs), called)
            output = self._opened(path, steps, called)(*args, **kwargs)
            self._keep(path, steps, "output", output, called)
            return output

        return op

    def _opened(self, path: str, steps: tuple[str, ...], called: Any) -> Any:
        """The function an operation calls, with its own operations reporting too where it is one of transformers'."""
        if len(steps) >= DEPTH or not (inspect.isfunction(called) or inspect.ismethod(called)):
            return called
        if (
            not str(called.__module__).startswith("transformers.")
            or isinstance(getattr(called, "__self__", None), torch.nn.Module)
            and called.__name__ in ("forward", "__call__")
        ):
            return called
        try:
            return instrument(called, self._op(path, steps))[0]
        except (SourceNotAvailable, SyntaxError):
            return called

    def _keep(self, path: str, steps: tuple[str, ...], side: str, held: Any, called: Any = None) -> None:
        self._quiet = True
        for index, tensor in _tensors(held):
            if isinstance(tensor, torch.nn.Parameter):
                continue
            self._order += 1
            self.found.sites.append(
                Site(
                    path,
                    steps,
                    side,
                    index,
                    tensor.detach().clone(),
                    self._order,
                    called,
                    self.found.calls[path, steps],
                )
            )
        self._quiet = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in WATCHED and self._inside and not self._quiet:
            self._event(name, [*args, *(kwargs or {}).values()], out)
        return out

    def _event(self, name: str, given: list[Any], out: Any) -> None:
        first, extra = (out[0], out[1]) if isinstance(out, tuple) else (out, None)
        if not isinstance(first, torch.Tensor):
            return
        self._order += 1
        inputs = [item for item in given if isinstance(item, torch.Tensor)]
        inputs += [item for items in given if isinstance(items, (tuple, list)) for item in items]
        self.found.events.append(
            Event(
                name.strip("_"),
                tuple(item.detach().clone() for item in inputs if isinstance(item, torch.Tensor)),
                first.detach().clone(),
                tuple(self._inside),
                self._order,
                extra.detach().clone() if isinstance(extra, torch.Tensor) else None,
            )
        )


def _tensors(held: Any, index: tuple[Key, ...] = ()) -> Iterator[tuple[tuple[Key, ...], torch.Tensor]]:
    """The tensors within what a module or operation takes or gives, with their places."""
    if isinstance(held, torch.Tensor):
        yield index, held
    elif isinstance(held, (tuple, list)) and len(index) < 2:
        for position, item in enumerate(held):
            yield from _tensors(item, (*index, position))
    elif isinstance(held, Mapping) and len(index) < 2:
        for name, item in held.items():
            if isinstance(name, str):
                yield from _tensors(item, (*index, name))


@contextmanager
def recorder(model: torch.nn.Module, opened: Iterable[str]) -> Iterator[Recording]:
    """Record what is run inside.

    Args:
        model: its modules report their inputs and outputs.
        opened: paths below which the operations report too.
    """
    recording = _Recorder()
    before = {path: module.__dict__.get("forward") for path, module in model.named_modules()}
    prefixes = tuple(opened)
    every = [(path, module) for path, module in model.named_modules() if not isinstance(module, torch.nn.ModuleList)]
    for path, module in every:
        if path:
            recording.module(path, module, operations=any(within(path, prefix) for prefix in prefixes))
    try:
        with torch.no_grad(), recording:
            yield recording.found
    finally:
        for path, module in every:
            if path:
                module.__dict__.pop("forward", None)
                if before[path] is not None:
                    module.__dict__["forward"] = before[path]
