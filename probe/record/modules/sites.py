"""Where each module of a model stands: its path with the index of its block, and the block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from ...measure.native import in_block
from ...measure.run import Run

FEW = 3
"""A list inside a block with more members than this is one kind of module many times, as experts are; a list outside
the blocks is one in any case.
"""


@dataclass(frozen=True)
class Site:
    """Where a module is: its path with `{i}` and `{j}`, the block, and whether it is in the vision tower."""

    path: str
    native: str
    block: int | None
    vision: bool
    repeated: bool


def sites(run: Run) -> Iterator[tuple[Site, torch.nn.Module]]:
    """Every module of the model once, parents first."""
    root = run.model._module
    places = {id(module): path for path, module in root.named_modules()}
    stacks = []
    for stack in run.stacks():
        vision = stack.label.startswith("model.vision")
        stacks += [(places[id(envoy._module)], index, vision) for index, envoy in enumerate(stack.envoys)]
    lists = {path: len(module) for path, module in root.named_modules() if isinstance(module, torch.nn.ModuleList)}
    for path, module in root.named_modules():
        prefix, block, vision = next(
            (each for each in stacks if path == each[0] or path.startswith(f"{each[0]}.")), ("", None, False)
        )
        inner, repeated = _folded(path, prefix, lists)
        if block is not None:
            inner = in_block(inner, prefix)
        yield Site(inner, path, block, vision, repeated), module


def _folded(path: str, prefix: str, lists: Mapping[str, int]) -> tuple[str, bool]:
    """A path with `{j}` for the place in each long list below ``prefix``."""
    steps: list[str] = []
    native: list[str] = []
    folded = False
    for step in path.split("."):
        long = lists.get(".".join(native), 0) > (FEW if prefix else 0) and len(".".join([*native, step])) > len(prefix)
        folded = folded or long
        native.append(step)
        steps.append("{j}" if long else step)
    return ".".join(steps), folded
