"""What enters the stack: the embedding module's output and block 0's input for other tokens, and whether blocks look
at tokens or embeddings again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from ..measure.run import Run
from .extra import SCALE, SHORT, forward, once, times, token_ids
from .rows import Change, Rows, hooks, removed
from .tap import Tap

STREAM_SCALE = 1024.0
"""What the stream that enters a block is multiplied with in one row."""


@dataclass
class Entrance:
    """One forward in which every block takes row 0's stream on every row.

    Row :attr:`same` is row 0 again; row :attr:`other` has other tokens; in row :attr:`larger` the embedding module's
    output is multiplied; row :attr:`ids` has other tokens and row 0's embedding; in row :attr:`scaled` the stream that
    enters each block is multiplied.

    Attributes:
        embedded: the embedding module's output, ``[rows, seq, width]``.
        taken: what block 0 would take, cut to one lane, ``[rows, seq, width]``; None where it takes other positions.
        table: the rows of the embedding table that were looked up, ``[rows, seq, width]``.
        larger_table: what the embedding module gives for a table that is four times as large.
        entering: what enters each block after these changes; and :attr:`leaving`, what leaves it.
        children: the outputs of a block's direct children, by block and name.
        attends: for each block whether an attention ran inside it, as a sublayer or on the way to another one.
    """

    embedded: torch.Tensor
    taken: torch.Tensor | None
    table: torch.Tensor
    larger_table: torch.Tensor
    entering: dict[int, torch.Tensor] = field(default_factory=dict)
    leaving: dict[int, torch.Tensor] = field(default_factory=dict)
    children: dict[tuple[int, str], torch.Tensor] = field(default_factory=dict)
    attends: list[bool] = field(default_factory=list)
    same: int = 1
    larger: int = 2
    ids: int = 3
    other: int = 4
    scaled: int = 5
    rows: int = 7
    """One more than there are changes: no multiple of as many as a stream may have lanes."""


@once
def entrance(run: Run) -> Entrance:
    """One forward of other tokens, of other embeddings and of a larger stream, on the same positions."""
    module = run.model.embed_tokens._module
    rows = Rows(Entrance.rows)
    ids = token_ids(run, SHORT, rows.total)
    ids[[Entrance.ids, Entrance.other]] = token_ids(run, SHORT, seed=1)[0]
    given: list[torch.Tensor] = []
    seen: dict[str, torch.Tensor] = {}
    arriving: dict[Any, torch.Tensor] = {}
    leaving: dict[Any, torch.Tensor] = {}
    children: dict[Any, torch.Tensor] = {}

    def embed(_: torch.nn.Module, args: tuple[Any, ...], out: torch.Tensor) -> torch.Tensor:
        given.append(args[0])
        changed = rows.change(Entrance.larger, times(SCALE))(out)
        changed[Entrance.ids] = out[0]
        seen.setdefault("embedded", changed.detach().float().clone())
        return changed

    def enter(stream: torch.Tensor) -> torch.Tensor:
        seen.setdefault("taken", stream.detach().float().clone())
        return stream

    blocks = [envoy._module for envoy in run.text.envoys]
    entering: list[tuple[torch.nn.Module, Change]] = [(blocks[0], enter)]
    after: list[tuple[torch.nn.Module, Change]] = []
    for index, block in enumerate(blocks):
        changes = rows.align, rows.change(Entrance.scaled, times(STREAM_SCALE)), rows.keep(arriving, index)
        entering += [(block, change) for change in changes]
        after.append((block, rows.keep(leaving, index)))
        for name, child in block.named_children():
            if any(True for _ in child.parameters()):
                after.append((child, rows.keep(children, (index, name))))
    tap = Tap(run.text.envoys)
    with removed(module.register_forward_hook(embed)), hooks(entering, after), tap:
        forward(run, ids)
    weight = module.weight.detach()
    with torch.no_grad():
        larger = torch.func.functional_call(module, {"weight": weight * SCALE}, (given[0],)).float()
    embedded = seen["embedded"]
    return Entrance(
        embedded,
        _one_lane(seen["taken"], embedded),
        weight[given[0]].float(),
        larger,
        arriving,
        leaving,
        children,
        [tapped.queries is not None for tapped in tap.blocks],
    )


def _one_lane(taken: torch.Tensor, like: torch.Tensor) -> torch.Tensor | None:
    """The stream that enters block 0, the first of its lanes where it has several, at the positions of the tokens."""
    rows, positions, width = like.shape
    if taken.ndim == 4:
        taken = taken.select(2 if taken.shape[:2] == like.shape[:2] else 0, 0)
    if taken.shape[0] != rows or taken.ndim != 3 or taken.shape[1] < positions or taken.shape[2] < width:
        return None
    return taken[:, -positions:, :width]
