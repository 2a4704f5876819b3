"""From a model that runs to a draft of its family: one recorded forward, one traced forward."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ..checkpoints.implementation import default_attention, follows_interface, implementation
from ..wiring.anatomy import derive
from . import blocks, tree
from .declare import BlockDraft, Draft
from .find import place
from .order import in_order
from .sites import recorder

ROWS = 3
"""Rows of the recorded forward: several, so that a batch axis is told from others."""


def draft(model: torch.nn.Module, inputs: dict[str, Any]) -> Draft:
    """Derive names, values and sizes of a model.

    Args:
        model: eval mode, under eager attention.
        inputs: of one row; ``input_ids`` is ``[1, seq]``.

    Raises:
        Underivable: a block's output is no sum over its input and its submodules.
        Unlocated: what a block adds stands nowhere that can be named.
        LookupError: the model has no list of blocks, or its logits are not made from its head's output.
    """
    rows = several(inputs)
    container, stack = tree.blocks(model)
    anatomy = derive(list(stack), lambda: model(**rows))
    with recorder(model, [container]) as recording:
        output = model(**rows)
    scale, cap = tree.past_head(model, recording, output.logits)
    found = []
    for index, wiring in enumerate(anatomy):
        path = f"{container}.{index}"
        try:
            found.append(blocks.describe(model, recording, path, index, wiring, ROWS))
        except blocks.Unlocated as error:
            raise blocks.Unlocated(f"block {index} ({type(stack[index]).__name__}): {error}") from error
    for block in found:
        for host in block.hosts:
            if host.role == "mixer":
                host.values = in_order(recording, host)
    _mark_eager(model, rows, container, found)
    recording.repeats = 1
    ends = tree.ends(model, recording, container, f"{container}.{len(stack) - 1}")
    names = {container: "layers", **ends.rename}
    return Draft(container, names, found, ends.root, ends.readout, ends.leaving, ends.entering, scale, cap)


def _mark_eager(model: Any, rows: dict[str, Any], container: str, blocks: list[BlockDraft]) -> None:
    """Mark the values whose operation a default load does not run, of a class that chooses it in its own forward."""
    attn = default_attention(model)
    if attn == "eager" or follows_interface(model):
        return
    with implementation(model, attn), recorder(model, [container]) as recording:
        model(**rows)
    for block in blocks:
        for host in block.hosts:
            for name, value in host.values.items():
                if value.at is not None and not recording.calls[place(host.path, value.at)]:
                    host.values[name] = replace(value, options=(*value.options, ("eager", True)))


def several(inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs with rows of other tokens added: each row takes the first one's in another order."""
    ids = inputs["input_ids"]
    rows = [torch.cat([ids[:, :1], ids[:, 1:].roll(shift, 1)], 1) for shift in range(ROWS)]
    given = dict(inputs, input_ids=torch.cat(rows))
    for name, value in inputs.items():
        if name != "input_ids" and isinstance(value, torch.Tensor) and value.shape[:1] == ids.shape[:1]:
            given[name] = value.repeat(ROWS, *[1] * (value.ndim - 1))
    return given
