"""The forward whose rows each change one thing, shared by all who compare a changed row with row 0.

Every block takes row 0's stream on every row, so that what differs behind a block's entry was changed inside the block,
or reaches it beside the stream. Who takes part asks for some rows, and sees them and row 0 as a batch of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import update_wrapper
from typing import Any, TypeVar

import torch

from ..measure.run import Run
from ..standard.trace import Inputs, Worker
from ..standard.trace import run as run_workers
from .extra import BRIEF, accepts, attentions, forward, token_ids
from .rows import Change, Rows, hooks
from .shared import Shared
from .tap import MASKED, Tap, Tapped

Found = TypeVar("Found")

LEAST = 7
"""Fewest rows of the batch: more than a stream has lanes, which would look like rows."""


@dataclass
class Batch:
    """The batch before its forward, and what is kept of it for all.

    Attributes:
        ids: the token ids, ``[rows, seq]``, the same in every row until someone changes their own.
        workers: what is to be read or written by standard name; the forward is traced where there is any.
        heads: changes of what the attentions' heads give.
        inside: what passed in each block's attention, or anywhere in a block without one, and what each query might
            attend to, as the softmax that was heard last; set by the forward.
        arrived: what would have entered block 0 had the rows not been made alike; set by the forward.
    """

    ids: torch.Tensor
    workers: list[Worker] = field(default_factory=list)
    heads: list[Change] = field(default_factory=list)
    inside: list[Tapped] = field(default_factory=list)
    arrived: torch.Tensor = field(default_factory=lambda: torch.empty(0))


Setup = Callable[[Run, Batch, Rows], AbstractContextManager[Found]]
"""Changes rows of its own as long as the context lasts, and gives what it found, complete when the context ends."""


@dataclass(frozen=True)
class Perturbation:
    """Who takes part: how many rows they need beside row 0, none where a run has nothing for them; and what they do."""

    rows: Callable[[Run], int]
    setup: Setup[Any]


def perturbed(rows: Callable[[Run], int]) -> Callable[[Setup[Found]], Callable[[Run], Found]]:
    """Gives a function what came of its part in the shared forward, by run.

    Args:
        rows: how many it changes.
    """

    def joined(setup: Setup[Found]) -> Callable[[Run], Found]:
        return update_wrapper(_SHARED.join(Perturbation(rows, setup)), setup)

    return joined


def alone(run: Run, rows: Callable[[Run], int], setup: Setup[Found], length: int) -> Found:
    """What comes of one part in a forward of its own, on a prompt of ``length`` positions."""
    found: Found = _forward(run, [Perturbation(rows, setup)], length)[0]
    return found


def _forward(run: Run, parts: Sequence[Perturbation], length: int = BRIEF) -> list[Any]:
    counts = [part.rows(run) for part in parts]
    whole = Rows(max(LEAST, 1 + sum(counts)))
    batch = Batch(token_ids(run, length, whole.total))
    blocks = [envoy._module for envoy in run.text.envoys]

    def arrive(stream: torch.Tensor) -> torch.Tensor:
        if batch.arrived.numel() == 0:
            batch.arrived = stream.detach().float().clone()
        return stream

    def change_heads(heads: torch.Tensor) -> torch.Tensor:
        for change in batch.heads:
            heads = change(heads)
        return heads

    pairs = zip(run.text.envoys, attentions(run), strict=True)
    listened = [block if attention is None else attention for block, attention in pairs]
    tap = Tap(listened, heads=change_heads, softmax=lambda scores, _: scores > MASKED)
    batch.inside = tap.blocks
    entering: list[tuple[torch.nn.Module, Change]] = [(blocks[0], arrive), *((block, whole.align) for block in blocks)]
    found = []
    with ExitStack() as stack:
        stack.enter_context(hooks(entering))
        first = 1
        for part, count in zip(parts, counts, strict=True):
            found.append(stack.enter_context(part.setup(run, batch, whole.share(first, count))))
            first += count
        stack.enter_context(tap)
        if batch.workers:
            inputs: Inputs = {"input_ids": batch.ids, "attention_mask": torch.ones_like(batch.ids)}
            run_workers(run.model, inputs | ({"use_cache": False} if accepts(run, "use_cache") else {}), batch.workers)
        else:
            forward(run, batch.ids)
    return found


_SHARED: Shared[Perturbation] = Shared(_forward)
