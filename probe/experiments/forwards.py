"""An extra forward that changes the stream on its way into a block.

Like that of :mod:`probe.experiments.extra`, each is run at most once for a run, with one perturbation a row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from ..measure.run import Run
from .extra import SHORT, forward, noisy, once, times, token_ids
from .tap import Change, Rows, Tap, hooks

STREAM_SCALE = 1024.0
"""What the stream is multiplied with in a row of :func:`streams`."""


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
    rows: int = 5
    """One more than there are changes: not as many as a stream has lanes, which would look like rows."""


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
