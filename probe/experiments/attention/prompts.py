"""Two prompts of different tokens, longer than any window that can be afforded, read in one traced forward: who sees
whom, and the values; and where they are short, the first of them at other positions.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import torch

from ...instruments.extra import LENGTH, accepts, attention_hosts, once
from ...measure.run import Run
from ..answers import entry
from .looked import Looked, Read, look
from .traced import attention_value

AFFORDABLE = 1240
"""Most positions that are run to see past a window."""

WINDOWS = ("sliding_window", "attention_chunk_size", "window_size", "attention_window_size", "local_attention")
"""Config entries that may name a window or chunk; they only say how long a prompt must be."""

MOST = 1024
"""Most different tokens that are run to see how many directions the values have."""

SHIFTS = (
    (0, 1, 16, 1024, 65536, 4194304),
    (0, 1, 16, 256),
    (0, 1, 16),
)
"""By how many positions a prompt is moved: as far as the model goes without an error."""

AFFORDED = 56
"""Most positions of prompts of which the first is run at other positions too: longer rows cost more than a forward."""

MULTIPLE = 8
"""The prompts' length is a multiple of it: some attentions compress as many positions into one."""


@dataclass
class Prompts:
    """What was read on two prompts of ``length`` positions.

    Attributes:
        visible: what every query of every block may attend to on the first, ``[heads, query, key]``, or None.
        other: the same on the second, of other tokens.
        values: by block, ``[2, heads, length, head_dim]``; a block without an attention that serves them has none.
        unseen: the config's windows and chunks that are longer than the longest prompt run.
        shifts: by how many positions the first prompt was moved; nothing where it was not.
        moved: what was read of it, see :class:`~probe.experiments.attention.looked.Looked`.
    """

    visible: list[torch.Tensor | None]
    other: list[torch.Tensor | None]
    values: dict[int, torch.Tensor]
    length: int
    unseen: dict[str, int]
    shifts: tuple[int, ...] = ()
    moved: Read = field(default_factory=dict)


@once
def prompts(run: Run) -> Prompts:
    """One forward of both; none where no block has an attention."""
    length, unseen = reach(run)
    length = -(-max(length, _different(run) // 2 + 1) // MULTIPLE) * MULTIPLE
    if not any(attention_hosts(run)):
        nothing: list[torch.Tensor | None] = [None] * len(run.text)
        return Prompts(nothing, nothing, {}, length, unseen)
    ids = _tokens(run, 2 * length).view(2, length)
    shifts, found = farthest(run, ids) if length <= AFFORDED else ((), look(run, ids))
    return Prompts(_row(found, 0), _row(found, 1), found.values, length, unseen, shifts, found.moved)


def farthest(run: Run, ids: torch.Tensor, patterns: bool = True) -> tuple[tuple[int, ...], Looked]:
    """The largest shifts of the first prompt that this model takes, and what was read then: a table of positions or a
    window may be short.
    """
    for shifts in SHIFTS if accepts(run, "position_ids") else ():
        with suppress(IndexError, RuntimeError):
            return shifts, look(run, ids, shifts, patterns)
    return (0,), look(run, ids, (0,), patterns)


def _row(found: Looked, row: int) -> list[torch.Tensor | None]:
    return [None if seen is None else seen[row] for seen in found.visible]


def reach(run: Run) -> tuple[int, dict[str, int]]:
    """Positions of a prompt longer than the windows that the config names, and those that are longer than it."""
    named = {name: entry(run, name) for name in WINDOWS}
    sizes = {name: size for name, size in named.items() if isinstance(size, int) and not isinstance(size, bool)}
    length = max([LENGTH, *(size + LENGTH for size in sizes.values() if size + LENGTH <= AFFORDABLE)])
    return length, {name: size for name, size in sizes.items() if size >= length}


def _different(run: Run) -> int:
    """How many different tokens show all the directions of the widest values: some more than there are."""
    read = [attention_value(run, index, "attention_values") for index in range(len(run.text))]
    wide = [value.shape[1] * value.shape[-1] for value in read if value is not None]
    return min(MOST, 8 + min(run.model.hidden_size, max(wide, default=0)))


def _tokens(run: Run, count: int) -> torch.Tensor:
    """Token ids without special ones, all different as far as the vocabulary goes: ``[count]``."""
    low, high = run.model.vocab_size // 5, run.model.vocab_size * 4 // 5
    different = low + torch.randperm(high - low, generator=torch.Generator().manual_seed(0))
    return different.repeat(-(-count // len(different)))[:count].to(run.model.device)
