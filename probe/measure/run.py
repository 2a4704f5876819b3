"""One run of one checkpoint: the model, what it was given, every value it passed, and how its blocks are wired.

Identities, edits and experiments all work on a :class:`Run`; what it holds was measured in two forward passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from ..checkpoints.implementation import switch
from ..errors import ProbeError
from ..standard import StandardizedTransformer
from ..standard.inputs import prepare
from ..standard.stack import Stack
from ..standard.trace import Inputs, Key, Readings, read_all
from ..wiring.anatomy import Underivable, derive


@dataclass
class Run:
    """What was measured on one loaded checkpoint."""

    model: StandardizedTransformer
    prompt: str
    inputs: Inputs
    readings: Readings
    text: Stack
    vision: Stack | None
    used: set[tuple[str, str]] = field(default_factory=set)

    def stacks(self) -> Iterator[Stack]:
        yield self.text
        if self.vision is not None:
            yield self.vision

    def root(self, name: str, host: str = "model") -> Any:
        """A value of the root, or of the tower, in float32; None where this load has none."""
        value = self.readings.get(Key(host, None, name))
        self.used.add((host, name))
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value.float()
        return value

    @cached_property
    def dtype(self) -> torch.dtype:
        """Of the checkpoint's first floating parameter."""
        return next(p.dtype for p in self.model._module.parameters() if p.is_floating_point())


def measure(model: StandardizedTransformer, prompt: str | None = None) -> Run:
    """Read every value under eager attention and derive the wiring: two forward passes.

    Raises:
        ProbeError: the wiring of a block could not be derived, or contradicts what the family module declares.
    """
    text, inputs = prepare(model, prompt)
    switch(model._module, "eager")
    readings = read_all(model, inputs)
    towers = [("model.layers[i]", list(model.layers))]
    if model.has_vision:
        towers.append(("model.vision.layers[i]", list(model.vision.layers)))
    try:
        blocks = [envoy._module for _, envoys in towers for envoy in envoys]
        every = derive(blocks, lambda: model._module(**inputs, use_cache=False))
    except Underivable as error:
        raise ProbeError(f"{model.loaded.target.id}: {error}.") from error
    stacks = []
    for label, envoys in towers:
        stacks.append(Stack(label, envoys, every[: len(envoys)], readings))
        every = every[len(envoys) :]
    return Run(model, text, inputs, readings, stacks[0], stacks[1] if len(stacks) > 1 else None)
