"""Extra forwards that move positions, change the stream on its way into a block, or look at masks.

Like that of :mod:`probe.experiments.extra`, each is run at most once for a run, with one perturbation a row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from ..measure.checks import HIDDEN
from ..measure.run import Run
from .answers import entry
from .extra import LENGTH, SHORT, attentions, forward, noisy, once, times, token_ids
from .tap import Change, Rows, Tap, Tapped, hooks

AFFORDABLE = 1240
"""Most positions that are run to see past a window."""

PLACES = 24
"""Positions of the prompt of :func:`positions`: more than the steps in which a twin's attention changes with them."""

SHIFTS = (0, 1, 16, 1024, 65536)
"""By how many positions the rows of :func:`positions` are moved."""

STREAM_SCALE = 64.0
"""What the stream is multiplied with in a row of :func:`streams`."""


@dataclass
class Positions:
    """Queries and keys of every block for the same input at other positions, a row for each of :data:`SHIFTS`.

    The last row has shift 0 and one position's input at every position.
    """

    taps: list[Tapped]
    constant: int = len(SHIFTS)


@once
def positions(run: Run) -> Positions:
    """One forward whose rows move the positions and keep every attention's input."""
    every = attentions(run)
    start = torch.tensor([*SHIFTS, 0], device=run.model.device)[:, None]
    ids = token_ids(run, PLACES, len(SHIFTS) + 1)
    last = len(SHIFTS)
    rows = Rows(last + 1)
    entering: list[tuple[torch.nn.Module, Change]] = []
    for attention in every:
        if attention is not None:
            entering += [
                (attention._module, rows.align),
                (attention._module, rows.change(last, lambda row: row[1:2].expand_as(row))),
            ]
    tap = Tap(every)
    with hooks(entering), tap:
        forward(run, ids, position_ids=start + torch.arange(PLACES, device=run.model.device)[None])
    return Positions(tap.blocks)


@dataclass
class Streams:
    """What a block makes of a stream that was changed on its way in: rows :attr:`scaled`, :attr:`ids`, :attr:`noise`.

    ``entering`` and ``leaving`` hold the stream by block, ``children`` the outputs of a block's direct children,
    ``chosen`` the indices of every top-k inside the block, ``[rows * seq, k]`` or ``[rows, seq, k]``.
    """

    entering: dict[int, torch.Tensor] = field(default_factory=dict)
    leaving: dict[int, torch.Tensor] = field(default_factory=dict)
    children: dict[tuple[int, str], torch.Tensor] = field(default_factory=dict)
    chosen: list[list[torch.Tensor]] = field(default_factory=list)
    scaled: int = 1
    ids: int = 2
    noise: int = 3
    rows: int = 4


@once
def streams(run: Run) -> Streams:
    """One forward whose rows multiply the stream entering each block, change the token ids, or add noise to the
    stream.
    """
    found = Streams()
    rows = Rows(found.rows)
    entering: list[tuple[torch.nn.Module, Change]] = []
    leaving: list[tuple[torch.nn.Module, Change]] = []
    for index, envoy in enumerate(run.text.envoys):
        block = envoy._module
        changes = [
            rows.align,
            rows.change(found.scaled, times(STREAM_SCALE)),
            rows.change(found.noise, noisy),
            rows.keep(found.entering, index),
        ]
        entering += [(block, change) for change in changes]
        leaving.append((block, rows.keep(found.leaving, index)))
        for name, child in block.named_children():
            if any(True for _ in child.parameters()):
                leaving.append((child, rows.keep(found.children, (index, name))))
    ids = token_ids(run, SHORT, found.rows)
    ids[found.ids] = token_ids(run, SHORT, seed=1)[0]
    tap = Tap(run.text.envoys)
    with hooks(entering, leaving), tap:
        forward(run, ids)
    found.chosen = [block.chosen for block in tap.blocks]
    return found


Stored = list[tuple[int, int]]
"""For each block the bytes a cache holds, and the number of positions kept."""

GROWTH = 4
"""Tokens by which a cache is continued."""


@dataclass
class Masks:
    """What every query of every block may attend to: ``[query, key]`` over a prompt of ``length`` positions, or None.

    ``other`` is the same on a prompt of other tokens of :data:`LENGTH` positions. ``unseen`` names the config's windows
    and chunks that are longer than the longest prompt run. ``caches`` is what a cache held after the prompt, and after
    :data:`GROWTH` more tokens.
    """

    visible: list[torch.Tensor | None]
    other: list[torch.Tensor | None]
    length: int
    unseen: dict[str, int]
    caches: tuple[Stored, Stored]


@once
def masks(run: Run) -> Masks:
    """A prompt longer than any window the config names, where affordable, its continuation, and other tokens."""
    named = {name: entry(run, name) for name in ("sliding_window", "attention_chunk_size")}
    sizes = {name: int(size) for name, size in named.items() if isinstance(size, int)}
    length = max([LENGTH, *(size + LENGTH for size in sizes.values() if size + LENGTH <= AFFORDABLE)])
    long, other = Tap(attentions(run), softmax=_visible), Tap(attentions(run), softmax=_visible)
    with long:
        out = forward(run, token_ids(run, length), use_cache=True)
    name = "cache" if getattr(out, "cache", None) is not None else "past_key_values"
    cache = getattr(out, name)
    before = contents(cache, len(run.text))
    mask = torch.ones(1, length + GROWTH, dtype=torch.long, device=run.model.device)
    forward(run, token_ids(run, GROWTH, seed=2), attention_mask=mask, use_cache=True, **{name: cache})
    with other:
        forward(run, token_ids(run, LENGTH, seed=1))
    return Masks(
        [block.softmax for block in long.blocks],
        [block.softmax for block in other.blocks],
        length,
        {name: size for name, size in sizes.items() if size >= length},
        (before, contents(cache, len(run.text))),
    )


def contents(cache: Any, blocks: int) -> Stored:
    """What a cache holds of each block; nothing for a block that it has no layer for."""
    found = []
    for layer in cache.layers:
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        if keys is None or values is None or keys.numel() == 0:
            found.append((0, 0))
        else:
            size = keys.numel() * keys.element_size() + values.numel() * values.element_size()
            found.append((size, keys.shape[-2]))
    return found + [(0, 0)] * (blocks - len(found))


def _visible(scores: torch.Tensor, pattern: torch.Tensor) -> torch.Tensor:
    del pattern
    return (scores[0] > -HIDDEN).any(0)[:, : scores.shape[-2]]
