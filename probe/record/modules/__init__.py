"""What modules hold and return: the weights with their heads, the return types, and the model's optional outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...measure.run import Run
from ...schema import Output, Returned
from ...standard import StandardizedTransformer
from .experts import experts
from .known import Known
from .outputs import PLAIN, outputs
from .returned import returned
from .sized import sized
from .weights import Held, rows, weights

__all__ = ["Modules", "carried", "examine", "rows"]


@dataclass(frozen=True)
class Modules:
    """What was found of one checkpoint's modules."""

    returned: list[Returned] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    weights: list[Held] = field(default_factory=list)


def examine(run: Run) -> Modules:
    """Watches what every module returns in a plain forward, and asks for each optional output."""
    known = Known(run)
    kept: list[Any] = []

    def forward() -> None:
        with torch.no_grad():
            kept.append(run.model._module(**run.inputs, **PLAIN))

    found = returned(run, known, forward)
    return Modules(found, outputs(run, known, kept[0]), [*weights(run), *experts(run)])


def carried(
    found: Modules,
    twin: StandardizedTransformer,
    model: StandardizedTransformer,
    blocks: Sequence[int],
    tower: Sequence[int] | None,
) -> Modules:
    """What a twin's run says of a checkpoint whose block ``i`` is built like the twin's block ``blocks[i]``.

    Return types stay without their shapes. The weights have the checkpoint's own shapes, and its own sizes in their
    layouts where these fit in one way only. The optional outputs, which depend on the number of blocks, are left out.
    """
    types = []
    for row in found.returned:
        stack = tower if row.vision else blocks
        where = (
            None if row.blocks is None else [i for i, twin_block in enumerate(stack or ()) if twin_block in row.blocks]
        )
        if where == []:
            continue
        elements = [element.model_copy(update={"shape": None}) for element in row.elements]
        types.append(row.model_copy(update={"blocks": where, "elements": elements}))
    return Modules(types, [], sized(found.weights, twin, model, blocks))
