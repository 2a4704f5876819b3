"""Which positions reach a mixer without an attention: its response where one position of its input is changed."""

from __future__ import annotations

import torch

from ...instruments.extra import attention_hosts, forward, once, part, token_ids
from ...instruments.tap import Change, Rows, hooks
from ...measure.edits import noise_like
from ...measure.run import Run
from ...schema import Picture
from ..answers import tolerance
from ..base import some
from .masks import grouped, named, picture

PLACES = 24
"""Positions of the prompt; each is changed on a row of its own."""

QUIRKS = [
    "mamba1",
    "mamba2",
    "gated-recurrence",
    "matrix-memory",
    "delta-rule",
    "fixed-decay",
    "convolution-mixers",
]


def pictures(run: Run) -> list[Picture]:
    """The reach of the mixers, a picture for each kind."""
    found: list[Picture] = []
    for group in grouped(run, mixers_reach(run)):
        label = named(group.support, "as far as it does not fade")
        drawn = picture(
            f"reach-{len(found)}", label, group, len(run.text), QUIRKS, what="position of the mixer's output"
        )
        statement = f"{drawn.statement[:-1]}, as changes of its input one position at a time show."
        if group.support.kind == "other":
            statement = (
                f"On {some(group.blocks, len(run.text))} an input reaches later outputs of the mixer until its effect "
                f"has faded below {tolerance(run):g} of the output's size."
            )
        axes = ["input position", "output position"]
        found.append(drawn.model_copy(update={"axes": axes, "statement": statement}))
    return found


@once
def mixers_reach(run: Run) -> list[torch.Tensor | None]:
    """Whether output ``i`` of each block's mixer moves when input ``j`` does: ``[i, j]``; None where the block has an
    attention, or no mixer.

    One forward: row 0 is plain, and row ``1 + j`` has noise on position ``j`` of what every mixer takes.
    """
    mixers = [_mixer(run, index) for index in range(len(run.text))]
    found: list[torch.Tensor | None] = [None] * len(mixers)
    if not any(mixers):
        return found
    rows = Rows(PLACES + 1)
    outputs: dict[int, torch.Tensor] = {}
    entering: list[tuple[torch.nn.Module, Change]] = []
    leaving: list[tuple[torch.nn.Module, Change]] = []
    for index, module in enumerate(mixers):
        if module is not None:
            entering.append((module, lambda given: _each_place(rows, given)))
            leaving.append((module, rows.keep(outputs, index)))
    with hooks(entering, leaving):
        forward(run, token_ids(run, PLACES, rows.total))
    for index, out in outputs.items():
        if out.shape[1] == PLACES:
            moved = (out[1:] - out[:1]).abs().amax(-1).T
            found[index] = moved > tolerance(run) * float(out.abs().max())
    return found


def _mixer(run: Run, index: int) -> torch.nn.Module | None:
    if attention_hosts(run)[index] is not None or not run.text.anatomy:
        return None
    terms = [term for term in run.text.anatomy[index].terms if term.kind == "mixer" and term.hosts]
    host = part(run.text.envoys[index], terms[0].hosts[-1]) if terms else None
    return None if host is None else host._module


def _each_place(rows: Rows, given: torch.Tensor) -> torch.Tensor:
    """Row 0's input on every row, with noise on one position of each row after it."""
    if given.shape[:2] != (rows.total, PLACES):
        return given
    changed = rows.align(given)
    noise = noise_like(given[0, 0]).to(given.dtype) * given[0].float().std().to(given.dtype)
    for place in range(PLACES):
        changed[1 + place, place] += noise
    return changed
