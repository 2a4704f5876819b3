"""Forwards with hooks of plain PyTorch on modules: what each took and gave, and the logits after an edit there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ..standard.trace import Inputs
from .edits import noise_like

Side = Literal["in", "out"]


@dataclass
class Passed:
    """What one module took and gave in one forward: the first tensor of each side, and where a hook finds it."""

    module: torch.nn.Module
    order: int
    before_text: bool
    entering: torch.Tensor | None
    taken: str
    leaving: torch.Tensor | None = None
    given: str = ""
    calls: int = 1


Forward = dict[str, Passed]
"""Path -> what passed that module."""


@contextmanager
def as_it_was(module: torch.nn.Module) -> Iterator[None]:
    """What a forward leaves on its modules, such as the offset of positions after an image, is put back."""
    before = [(part, dict(vars(part))) for part in module.modules()]
    try:
        yield
    finally:
        for part, held in before:
            vars(part).update(held)


def forward(
    model: Any, inputs: Inputs, watched: Mapping[str, torch.nn.Module], first: str
) -> tuple[Forward, torch.Tensor]:
    """What passed each of the modules ``watched``, and the logits.

    Args:
        first: path of the first text block.
    """
    found: Forward = {}
    handles = []

    def watch(path: str, module: torch.nn.Module) -> None:
        def enter(_: torch.nn.Module, args: Any, kwargs: Any) -> None:
            if path in found:
                found[path].calls += 1
                return
            taken, entering = _address({f"args[{i}]": a for i, a in enumerate(args)}, kwargs, "kwargs")
            found[path] = Passed(module, len(found), first not in found, _kept(entering), taken)

        def leave(_: torch.nn.Module, __: Any, output: Any) -> None:
            given, leaving = _of_output(output)
            found[path].leaving, found[path].given = _kept(leaving), given

        handles.extend([module.register_forward_pre_hook(enter, with_kwargs=True), module.register_forward_hook(leave)])

    for path, module in watched.items():
        watch(path, module)
    try:
        logits = model(**inputs, use_cache=False).logits.float()
    finally:
        for handle in handles:
            handle.remove()
    return found, logits


def edited(model: Any, inputs: Inputs, passed: Passed, side: Side, *, in_place: bool = False) -> torch.Tensor:
    """The logits with noise of the tensor's own size added on one side of a module.

    Args:
        in_place: add it to the tensor that is there; else the hook gives the module's caller another one.
    """

    def noisy(tensor: torch.Tensor) -> torch.Tensor:
        noise = noise_like(tensor).to(tensor.dtype) * tensor.float().std().to(tensor.dtype)
        return tensor.add_(noise) if in_place else tensor + noise

    def enter(_: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        args, kwargs = list(args), dict(kwargs)
        where, key = _parsed(passed.taken)
        held = args if where == "args" else kwargs
        held[key] = noisy(held[key])
        return tuple(args), kwargs

    def leave(_: torch.nn.Module, __: Any, output: Any) -> Any:
        _, key = _parsed(passed.given)
        if key is None:
            return noisy(output)
        if isinstance(output, tuple):
            return (*output[:key], noisy(output[key]), *output[key + 1 :])
        output[key] = noisy(output[key])
        return output

    register = (
        passed.module.register_forward_pre_hook(enter, with_kwargs=True)
        if side == "in"
        else passed.module.register_forward_hook(leave)
    )
    try:
        untouched = {name: tensor.clone() for name, tensor in inputs.items()}
        return model(**untouched, use_cache=False).logits.float()
    finally:
        register.remove()


def _address(args: dict[str, Any], kwargs: dict[str, Any], called: str) -> tuple[str, torch.Tensor | None]:
    named = {**args, **{f"{called}[{name!r}]": value for name, value in kwargs.items()}}
    for where, value in named.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return where, value
    return "", None


def _of_output(output: Any) -> tuple[str, torch.Tensor | None]:
    if isinstance(output, torch.Tensor):
        return "output", output if output.is_floating_point() else None
    if isinstance(output, (tuple, list)):
        return _address({f"output[{i}]": value for i, value in enumerate(output)}, {}, "output")
    return _address({}, dict(output), "output") if isinstance(output, dict) else ("", None)


def _parsed(address: str) -> tuple[str, Any]:
    """``args[0]`` -> ``("args", 0)``; ``kwargs['x']`` -> ``("kwargs", "x")``; ``output`` -> ``("output", None)``."""
    found = re.fullmatch(r"(\w+)(?:\[(?:(\d+)|'(\w+)')\])?", address)
    assert found is not None
    return found[1], int(found[2]) if found[2] else found[3]


def _kept(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.detach().clone().float()
