"""Queries and keys of one input at other positions: what an attention makes of the position alone.

Every attention gets the same input on every row, and the rows stand at shifted positions. Where a model's positions
cannot be moved from outside, one input at successive positions of a prompt tells as much about slow changes as its
length allows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...instruments.extra import LENGTH, accepts, attention_hosts, attentions, forward, once, token_ids
from ...instruments.tap import Rows, Tap, hooks
from ...measure.run import Run
from ..answers import tolerance
from ..attention.looked import KEYS, QUERIES, SCORES, Read, look
from ..attention.prompts import farthest, prompts
from ..attention.traced import aligned

PLACES = 24
"""Positions of the prompt: more than the steps in which a twin's attention changes with them."""

LONG = 480
"""Positions of the prompt where positions cannot be moved, and something changes along a short one."""

SETTLED = 8
"""Positions after which one repeated input looks the same to whatever reaches back a few positions."""

APART = 1000
"""By how many positions one of three streams is moved."""


@dataclass(frozen=True)
class Track:
    """One block's queries and keys at several positions, and what it makes of one input at all of them.

    Attributes:
        shifts: the positions, relative to the first.
        queries, keys: ``[shifts, heads, samples, width]``: a row for each shift, of the same inputs.
        constant: ``[heads, seq, width]``: the queries of one input at successive positions.
        scores: ``[heads, query, key]`` of one input at all positions; None where they could not be read.
        moved: whether the positions were passed to the model, which then also knows where they are.
    """

    shifts: tuple[int, ...]
    queries: torch.Tensor
    keys: torch.Tensor
    constant: torch.Tensor
    scores: torch.Tensor | None
    moved: bool


@once
def tracks(run: Run) -> list[Track | None]:
    """The track of every block; None where it has no attention or its queries and keys could not be read."""
    if not any(attention_hosts(run)):
        return [None] * len(run.text)
    shifts, values = _longest(run)
    found = [_track(values, shifts, index) for index in range(len(run.text))]
    if len(shifts) > 1 and any(track is not None and not track.moved for track in found):
        values = _successive(run)
        found = [track if track is None or track.moved else _track(values, (0,), i) for i, track in enumerate(found)]
    return found


def _track(values: Read, shifts: tuple[int, ...], index: int) -> Track | None:
    """A block's track; where moved positions change nothing that successive ones do change, along successive ones."""
    queries, keys = values.get((index, QUERIES)), values.get((index, KEYS))
    if queries is None or keys is None:
        return None
    last = values.get((index, SCORES))
    if len(shifts) > 1 and not (_still(queries[:-1]) and _still(keys[:-1]) and not _still(_settled(keys))):
        return Track(shifts, queries[:-1], keys[:-1], queries[-1], last, True)
    ramp = _settled(queries)
    return Track(tuple(range(len(ramp))), ramp, _settled(keys), queries[-1], last, False)


def _settled(value: torch.Tensor) -> torch.Tensor:
    """The last row, one input at every position, as ``[positions, heads, 1, width]``."""
    return value[-1][:, SETTLED:].transpose(0, 1)[:, :, None]


def _still(rows: torch.Tensor, close: float = 1e-3) -> bool:
    return float((rows - rows[:1]).abs().max()) <= close * float(rows.abs().max())


def _longest(run: Run) -> tuple[tuple[int, ...], Read]:
    """What was read with the largest shifts that this model takes."""
    shifts, values = prompts(run).shifts, prompts(run).moved
    if not shifts:
        shifts, found = farthest(run, token_ids(run, PLACES), patterns=False)
        values = found.moved
    return shifts, _first(values, PLACES) if len(shifts) > 1 else _successive(run)


def _successive(run: Run) -> Read:
    """What was read at successive positions alone: on a short prompt, or a long one where something changes along it,
    which may do so slowly.
    """
    shared = prompts(run).shifts == (0,)
    short = _first(prompts(run).moved, LENGTH) if shared else _one_input(run, LENGTH)
    ramps = [_settled(value) for (_, name), value in short.items() if name in (QUERIES, KEYS)]
    return short if all(_still(ramp, tolerance(run)) for ramp in ramps) else _one_input(run, LONG)


def _one_input(run: Run, length: int) -> Read:
    return look(run, token_ids(run, length), (0,), patterns=False).moved


def _first(values: Read, count: int) -> Read:
    """Queries and keys at the first positions alone."""
    return {key: value if key[1] == SCORES else value[:, :, :count] for key, value in values.items()}


@once
def streams_of_positions(run: Run) -> list[list[set[int]] | None]:
    """For each block the dimensions of its queries that each of three streams of positions moves; None where the
    model takes no three streams.
    """
    every: list[list[set[int]] | None] = [None] * len(run.text)
    if not accepts(run, "position_ids"):
        return every
    rows = Rows(4)
    ids = token_ids(run, PLACES, rows.total)
    places = torch.arange(PLACES, device=ids.device).expand(3, rows.total, PLACES).clone()
    for stream in range(3):
        places[stream, 1 + stream] += APART
    tap = Tap(attentions(run))
    try:
        with hooks(aligned(run, rows)), tap:
            forward(run, ids, position_ids=places)
    except (IndexError, RuntimeError, ValueError, TypeError):
        return every
    for index, tapped in enumerate(tap.blocks):
        if tapped.queries is not None and tapped.queries.shape[0] == rows.total:
            every[index] = [_moving(tapped.queries, 1 + stream) for stream in range(3)]
    return every


def _moving(queries: torch.Tensor, row: int) -> set[int]:
    """The dimensions in which a row of ``[rows, heads, seq, width]`` differs from the first."""
    change = (queries[row] - queries[0]).abs().amax(dim=(0, 1))
    return set((change > 1e-4 * queries[0].abs().amax(dim=(0, 1))).nonzero().flatten().tolist())
