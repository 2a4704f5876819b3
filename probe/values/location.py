"""A location: where in a forward pass a value is, as a path from its host that nnsight can follow.

The machine form is an expression on the host's envoy, for example ``input_layernorm.output``,
``parent.post_attention_layernorm.output``, ``source.attention_interface_1.inputs[0][1]`` or
``source.attention_interface_1.source.nn_functional_softmax_0.input``. ``parent`` and ``root`` climb the tree,
``source`` enters a forward's operations, and the last step names a side: ``input`` (the first argument), ``inputs``
(``(args, kwargs)``, with the position wanted) or ``output``.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from nnsight.intervention.envoy import Envoy
from nnsight.intervention.source import SourceEnvoy, SourceNotAvailable, compiled, decorator_chain, install_source

from .peeled import parse_once

parse_once()

Key = int | str
Side = Literal["in", "out", "op"]

_FORM = re.compile(r"(?:(?P<steps>.+)\.)?(?P<side>inputs|input|output)(?P<index>(?:\[[^\]]+\])*)")
_INTERFACE = re.compile(r"get_interface\(\s*[^,]+,\s*(\w+)\s*,?\s*\)", re.S)


class Missing(Exception):
    """A location that this model does not have; the message names the step that is not there."""


class NotFormed(Missing):
    """The module is there, and its forward has no such operation; the message names it."""


@dataclass(frozen=True)
class Location:
    """A parsed location: the steps from the host, the side, and the position within what stands there."""

    steps: tuple[str, ...]
    side: str
    index: tuple[Key, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Location:
        match = _FORM.fullmatch(text)
        if match is None:
            raise ValueError(f"not a location: {text!r}")
        steps = tuple(match["steps"].split(".")) if match["steps"] else ()
        index = tuple(
            int(key) if key.lstrip("-").isdigit() else key.strip("'\"")
            for key in re.findall(r"\[([^\]]+)\]", match["index"])
        )
        return cls(steps, match["side"], index)

    def __str__(self) -> str:
        index = "".join(f"[{key!r}]" for key in self.index)
        return ".".join((*self.steps, self.side)) + index

    @property
    def key(self) -> str:
        """The suffix under which nnsight serves this side."""
        return "output" if self.side == "output" else "input"

    def handle(self, host: Envoy) -> Envoy | SourceEnvoy:
        """The envoy, or the operation inside a forward, whose side this is. Nested operations need a running trace."""
        target: Any = host
        for step in self.steps:
            target = target[int(step)] if step.isdigit() else getattr(target, step)
        return target

    def served_at(self, host: Envoy) -> str:
        """The name nnsight serves this side under."""
        return f"{self.handle(host).path}.{self.key}"

    def extract(self, raw: Any) -> Any:
        """The value within what nnsight serves: the element the index names, the first one of a tuple otherwise."""
        if self.side == "input":
            args, kwargs = raw
            return args[0] if args else next(iter(kwargs.values()))
        if self.side == "inputs" and not self.index:
            return raw
        for key in self.index:
            raw = raw[key]
        return _first(raw)

    def replace(self, raw: Any, value: Any) -> Any:
        """What nnsight serves, with ``value`` in the place :meth:`extract` reads."""
        if self.side == "input":
            args, kwargs = raw
            if args:
                return (value, *args[1:]), kwargs
            name = next(iter(kwargs))
            return args, {**kwargs, name: value}
        return _put(raw, self.index, value)

    def check(self, host: Envoy) -> None:
        """Follow the path without running the model.

        Raises:
            Missing: a module or an operation on the way is not there.
        """
        target: Envoy = host
        steps = list(self.steps)
        while steps:
            step = steps.pop(0)
            if step == "source":
                _check_operations(target, steps)
                return
            try:
                target = target[int(step)] if step.isdigit() else getattr(target, step)
            except (AttributeError, IndexError):
                target = None
            if not isinstance(target, Envoy):
                raise Missing(step)

    def open(self, host: Envoy) -> None:
        """Make the operations on the path addressable, which must happen before the forward that has them begins."""
        if "source" in self.steps:
            target: Any = host
            for step in self.steps[: self.steps.index("source")]:
                target = target[int(step)] if step.isdigit() else getattr(target, step)
            install_source(target)

    def words(self) -> str:
        """The location as a reader would say it."""
        modules, operations = self._split()
        element = "" if not self.index or self.side == "input" else self._element()
        if not operations:
            if not modules:
                return f"the module's own {'output' if self.side == 'output' else 'input'}{element}"
            return f"the {_owner(modules)}'s {self.side}{element}"
        inside = "inside the forward" if not modules else f"inside {_forward_of(modules)}'s forward"
        side = {"output": "output", "input": "input", "inputs": "arguments"}[self.side]
        nested = "".join(f" inside {name}" for name in reversed(operations[:-1]))
        return f"{inside}: the {side} of {operations[-1]}{nested}{element}"

    def _split(self) -> tuple[list[str], list[str]]:
        """The steps over modules, and the names of the operations below them."""
        if "source" not in self.steps:
            return list(self.steps), []
        first = self.steps.index("source")
        return list(self.steps[:first]), [step for step in self.steps[first:] if step != "source"]

    def _element(self) -> str:
        keys = [key for key in self.index if key not in ("logits", "last_hidden_state")]
        if self.side == "inputs":
            keys = keys[1:]
        return "".join(f", element {key}" for key in keys)

    def plain(self, host: Envoy, root: Envoy) -> tuple[str, Side, Key | None]:
        """``(path, side, element)`` in plain PyTorch terms: a path for ``get_submodule`` from the root's module."""
        modules, operations = self._split()
        target: Any = host
        for step in modules:
            target = target[int(step)] if step.isdigit() else getattr(target, step)
        path = target.path.removeprefix(root.path).lstrip(".")
        if operations:
            index = "".join(f"[{key!r}]" for key in self.index)
            return path, "op", " > ".join(operations) + f" {self.side}{index}"
        element: Key | None = None
        if self.side == "inputs" and self.index:
            element = self.index[-1]
        elif self.index:
            element = self.index[0]
        return path, "out" if self.side == "output" else "in", element


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, (tuple, list)) else value


def _put(raw: Any, index: tuple[Key, ...], value: Any) -> Any:
    if not index:
        if isinstance(raw, tuple):
            return (value, *raw[1:])
        if isinstance(raw, list):
            return [value, *raw[1:]]
        return value
    key, rest = index[0], index[1:]
    if isinstance(raw, tuple) and isinstance(key, int):
        items = [_put(item, rest, value) if at == key % len(raw) else item for at, item in enumerate(raw)]
        return tuple(items)
    changed = copy.copy(raw)
    changed[key] = _put(raw[key], rest, value)
    return changed


def _owner(modules: list[str]) -> str:
    if modules[0] == "parent":
        return f"sibling module {'.'.join(modules[1:])}" if len(modules) > 1 else "parent module"
    if modules[0] == "root":
        return f"module {'.'.join(['model', *modules[1:]])}"
    return f"child module {'.'.join(modules)}"


def _forward_of(modules: list[str]) -> str:
    if modules == ["parent"]:
        return "the parent module"
    if modules[0] == "root":
        return ".".join(["model", *modules[1:]])
    return ".".join(step for step in modules if step != "parent")


def _check_operations(envoy: Envoy, steps: list[str]) -> None:
    """Check ``[op, "source", op, …]`` against the forwards that would run, without running them."""
    config = getattr(envoy._module, "config", None)
    attn = getattr(config, "_attn_implementation", None)
    experts = getattr(config, "_experts_implementation", None)
    missing = _missing_operation(type(envoy._module).forward, tuple(steps), attn, experts)
    if missing is not None:
        raise NotFormed(missing)


@cache
def _missing_operation(function: Any, steps: tuple[str, ...], attn: str | None, experts: str | None) -> str | None:
    """The first operation of the path that these forwards do not have; the answer is the same for every instance."""
    operation, *rest = steps
    inner = decorator_chain(function)[0]
    try:
        forward = compiled(inner)
    except SourceNotAvailable:
        return f"source of {getattr(function, '__name__', function)}"
    if operation not in forward.names:
        return operation
    if not rest:
        return None
    called = _called(inner, forward.source, attn, experts)
    return None if called is None else _missing_operation(called, tuple(rest[1:]), attn, experts)


def _called(function: Any, source: str, attn: str | None, experts: str | None) -> Any:
    """The function that an interface lookup in ``source`` gives under these implementations; None if there is none."""
    match = _INTERFACE.search(source)
    if match is None:
        return None
    if "_experts_implementation" in source:
        from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        fallback = cells[match[1]].cell_contents if match[1] in cells else None
        return ALL_EXPERTS_FUNCTIONS.get_interface(experts, fallback)
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    return ALL_ATTENTION_FUNCTIONS.get_interface(attn, function.__globals__.get(match[1]))
