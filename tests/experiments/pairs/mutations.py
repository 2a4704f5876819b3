"""Changes of a built model that the tables share: of its blocks' modules, and of what modules take and give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Make = Callable[[Any], nn.Module]


class Same(nn.Module):
    """Gives a copy of what it gets."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clone()


def blocks(module: Any) -> Any:
    """The text model's blocks: the longest list of modules that is no list within another's entry."""
    lists = [(name, part) for name, part in module.named_modules() if isinstance(part, nn.ModuleList)]
    outer = [part for name, part in lists if not any(name.startswith(f"{other}.") for other, _ in lists)]
    return max(outer, key=len)


def each_block(change: Callable[[Any], None]) -> Callable[[Any], None]:
    """A mutation that changes every block."""

    def mutate(module: Any) -> None:
        for block in blocks(module):
            change(block)

    return mutate


def replaced(make: Make, *paths: str) -> Callable[[Any], None]:
    """A mutation that puts what ``make`` makes of a module in its place, on every block that has it."""

    def change(block: Any) -> None:
        for path in paths:
            try:
                block.set_submodule(path, make(block.get_submodule(path)))
            except AttributeError:
                continue

    return each_block(change)


def named_like(make: Make) -> Make:
    """What `replaced` puts in a module's place, under the class name of that module."""

    def made(before: Any) -> nn.Module:
        after = make(before)
        after.__class__ = type(type(before).__name__, (type(after),), {})
        return after

    return made


def with_forward(forward: Callable[..., Any], path: str = "") -> Callable[[Any], None]:
    """A mutation that gives every block, or its module at a path, another forward under the name of its class."""

    def change(block: Any) -> None:
        part = block.get_submodule(path)
        part.__class__ = type(type(part).__name__, (type(part),), {"forward": forward})

    return each_block(change)


def giving(change: Callable[[torch.Tensor], torch.Tensor], path: str) -> Callable[[Any], None]:
    """A mutation that changes what a module of every block returns, the first of several."""

    def hook(_: nn.Module, __: Any, out: Any) -> Any:
        return change(out) if isinstance(out, torch.Tensor) else type(out)([change(out[0]), *out[1:]])

    return each_block(lambda block: block.get_submodule(path).register_forward_hook(hook))


def in_turn(*changes: Callable[[Any], None]) -> Callable[[Any], None]:
    """Several mutations as one."""

    def mutate(module: Any) -> None:
        for change in changes:
            change(module)

    return mutate


def set_config(**entries: Any) -> Callable[[Any], None]:
    """A mutation that changes what the config of a built model says, and nothing else."""

    def mutate(module: Any) -> None:
        for name, value in entries.items():
            setattr(module.config.get_text_config(decoder=True), name, value)

    return mutate
