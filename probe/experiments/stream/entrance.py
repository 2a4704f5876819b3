"""What enters the stack: the embedding module's output and block 0's input for other tokens, and whether blocks look
at tokens or embeddings again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from ...instruments.extra import BRIEF, SCALE, moved, token_ids
from ...instruments.perturbed import Batch, perturbed
from ...instruments.reweighted import called_with
from ...instruments.rows import Change, Rows, Times, hooks, removed
from ...measure.run import Run
from ..answers import tolerance

STREAM_SCALE = 1024.0
"""What the stream that enters a block is multiplied with in one row."""

NOTHING = torch.empty(0)
"""What is read only as the forward runs."""


@dataclass
class Entrance:
    """Rows of other tokens, of other embeddings and of a larger stream.

    Rows :attr:`same` and :attr:`again` are row 0 again; row :attr:`other` has other tokens; in row :attr:`larger` the
    embedding module's output is multiplied; row :attr:`ids` has other tokens and row 0's embedding; in row
    :attr:`scaled` the stream that enters each block is multiplied.

    Attributes:
        embedded: the embedding module's output, ``[rows, seq, width]``.
        taken: what block 0 would take, cut to one lane, ``[rows, seq, width]``; None where it takes other positions.
        table: the rows of the embedding table that were looked up, ``[rows, seq, width]``.
        larger_table: what the embedding module gives for a table that is four times as large.
        entering: what enters each block after these changes; and :attr:`leaving`, what leaves it.
        children: the outputs of a block's direct children, by block and name.
    """

    embedded: torch.Tensor = NOTHING
    taken: torch.Tensor | None = None
    table: torch.Tensor = NOTHING
    larger_table: torch.Tensor = NOTHING
    entering: dict[int, torch.Tensor] = field(default_factory=dict)
    leaving: dict[int, torch.Tensor] = field(default_factory=dict)
    children: dict[tuple[int, str], torch.Tensor] = field(default_factory=dict)
    same: int = 1
    larger: int = 2
    ids: int = 3
    other: int = 4
    scaled: int = 5
    again: int = 6


@perturbed(lambda run: Entrance.again)
@contextmanager
def entrance(run: Run, batch: Batch, rows: Rows) -> Iterator[Entrance]:
    """Rows of other tokens, of other embeddings and of a larger stream, on the same positions."""
    module = run.model.embed_tokens._module
    found = Entrance()
    for row in (Entrance.ids, Entrance.other):
        rows.part(batch.ids, row).copy_(token_ids(run, BRIEF, seed=1))
    given: list[torch.Tensor] = []

    def embed(_: torch.nn.Module, args: tuple[Any, ...], out: torch.Tensor) -> torch.Tensor:
        changes: dict[int, Change] = {Entrance.larger: Times(SCALE), Entrance.ids: lambda _: rows.part(out, 0)[0]}
        changed = rows.changes(changes)(out)
        if not given:
            found.embedded = rows.by_row(changed)
        given.append(rows.only(args[0]))
        return changed

    blocks = [envoy._module for envoy in run.text.envoys]
    entering: list[tuple[torch.nn.Module, Change]] = []
    after: list[tuple[torch.nn.Module, Change]] = []
    for index, block in enumerate(blocks):
        changes = rows.change(Entrance.scaled, Times(STREAM_SCALE)), rows.keep(found.entering, index)
        entering += [(block, change) for change in changes]
        after.append((block, rows.keep(found.leaving, index)))
        for name, child in block.named_children():
            if any(True for _ in child.parameters()):
                after.append((child, rows.keep(found.children, (index, name))))
    with removed(module.register_forward_hook(embed)), hooks(entering, after):
        yield found
    weight = module.weight.detach()
    with torch.no_grad():
        found.larger_table = called_with(module, {"weight": weight * SCALE}, given[0]).float()
    found.table = weight[given[0]].float()
    found.taken = _one_lane(rows.only(batch.arrived), found.embedded)


def mixes_rows(run: Run) -> list[bool]:
    """For each block whether it gives another output for the same input in another row of a batch."""
    seen = entrance(run)
    most = [max(moved(seen.leaving[index], row) for row in (seen.same, seen.again)) for index in range(len(run.text))]
    return [change > max(1e-3, tolerance(run)) for change in most]


def _one_lane(taken: torch.Tensor, like: torch.Tensor) -> torch.Tensor | None:
    """The stream that enters block 0, the first of its lanes where it has several, at the positions of the tokens."""
    rows, positions, width = like.shape
    if taken.ndim == 4:
        taken = taken.select(2 if taken.shape[:2] == like.shape[:2] else 0, 0)
    if taken.shape[0] != rows or taken.ndim != 3 or taken.shape[1] < positions or taken.shape[2] < width:
        return None
    return taken[:, -positions:, :width]
