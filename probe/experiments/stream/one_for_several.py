"""Weights that several blocks have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ...instruments.extra import SHORT, forward, moved, token_ids
from ...instruments.rows import Change, Rows, hooks
from ...measure.run import Run
from ..answers import per_block, tolerance
from ..base import Measured, Quirk, Verdict, some

FACTOR = 1.5
"""What weights that blocks have in common are multiplied by."""

Where = tuple[int, ...]
"""The blocks that have a weight in common."""


def shared_weights(run: Run) -> Verdict:
    """Looks for weights that several blocks hold, multiplies them, and gives every block the stream that it had: where
    the outputs of these blocks move, an edit on one is an edit on all of them.
    """
    found = [False] * len(run.text)
    sets = _sets(run)
    measured: Measured = {}
    if sets:
        taken: dict[int, torch.Tensor] = {}
        plain = _outputs(run, taken)
        for blocks, weights in sets.items():
            with _multiplied(weights):
                after = _outputs(run, taken)
            for index in blocks:
                found[index] |= moved(torch.cat([plain[index], after[index]]), 1) > tolerance(run)
        measured = {"sets": len(sets), "modules": sorted(_modules(run, sets))}
    return per_block(found, measured)


def _sets(run: Run) -> dict[Where, list[torch.nn.Parameter]]:
    """The weights that more than one block holds, by these blocks."""
    holders: dict[torch.nn.Parameter, list[int]] = {}
    for index, envoy in enumerate(run.text.envoys):
        for weight in envoy._module.parameters():
            holders.setdefault(weight, []).append(index)
    found: dict[Where, list[torch.nn.Parameter]] = {}
    for weight, blocks in holders.items():
        if len(blocks) > 1:
            found.setdefault(tuple(blocks), []).append(weight)
    return found


def _modules(run: Run, sets: dict[Where, list[torch.nn.Parameter]]) -> set[str]:
    """The outermost modules that hold nothing but such weights, by path from the block."""
    shared = {weight for weights in sets.values() for weight in weights}
    found: set[str] = set()
    for envoy in run.text.envoys:
        outermost: list[str] = []
        for path, module in envoy._module.named_modules():
            held = [*module.parameters()]
            if held and shared.issuperset(held) and not any(path.startswith(f"{outer}.") for outer in outermost):
                outermost.append(path)
        found |= {*outermost}
    return found


@contextmanager
def _multiplied(weights: list[torch.nn.Parameter]) -> Iterator[None]:
    """Multiplies weights as long as the context lasts."""
    before = [weight.detach().clone() for weight in weights]
    try:
        for weight in weights:
            weight.data.mul_(FACTOR)
        yield
    finally:
        for weight, held in zip(weights, before, strict=True):
            weight.data.copy_(held)


def _outputs(run: Run, taken: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """What each block gives, ``[1, seq, width]``, for the stream in ``taken``, which is filled where it is empty."""
    given: dict[Any, torch.Tensor] = {}

    def holding(index: int) -> Change:
        return lambda stream: taken.setdefault(index, stream.detach().clone())

    blocks = [(index, envoy._module) for index, envoy in enumerate(run.text.envoys)]
    with hooks([(block, holding(index)) for index, block in blocks], [(b, Rows(1).keep(given, i)) for i, b in blocks]):
        forward(run, token_ids(run, SHORT))
    return given


def _sentence(measured: Measured, blocks: list[int] | None, total: int) -> str:
    names = [f"`{name}`" for name in measured.get("modules") or [] if name]
    what = f"the weights in {' and '.join(names)}" if names else "weights"
    sets = measured.get("sets")
    ways = f", in {sets} sets" if isinstance(sets, int) and sets > 1 else ""
    return (
        f"On {some(blocks or [], total)} {what} are held in common with another of these blocks{ways}: an edit of them "
        "on one block is an edit on each that shares them."
    )


QUIRKS = (Quirk("shared-weights", "Weights shared by blocks", "text", shared_weights, _sentence),)
