"""Positions that enter by another way than a rotation: a factor of the queries, and a vector added to the stream."""

from __future__ import annotations

from contextlib import suppress

import torch

from ...instruments.extra import LENGTH, forward, once, token_ids
from ...instruments.tap import Change, hooks
from ...measure.rounding import digits
from ...measure.run import Run
from ..answers import explain, small, tolerance
from ..attention.traced import judged
from ..base import Measured, Quirk, Verdict, some
from .positions import tracks

LEAST = 12
"""Positions from which a step is looked for in how the queries grow."""

NEAR = 0.02
"""Error of a formula for that growth, relative to how much the queries grow in all."""

STEPS = ("floor_scale", "rope_parameters.original_max_position_embeddings")
SCALES = ("attn_scale", "rope_parameters.llama_4_scaling_beta")
"""Config entries that may name the step and the scale of a factor that grows with the position."""


def attention_temperature(run: Run) -> Verdict:
    """Lengths of the queries of one input at successive and at shifted positions: where they grow by one factor on
    every head, the queries are scaled by the position; a rotation keeps their length.
    """
    found: list[bool | None] = []
    factors: list[list[float]] = []
    for track in tracks(run):
        if track is None:
            found.append(None)
            continue
        in_call = _growth(track.constant.norm(dim=-1).transpose(0, 1))
        moved = _growth(track.queries.norm(dim=-1).transpose(1, 2).flatten(0, 1), track.queries.shape[2])
        close = 5 * tolerance(run)
        found.append(any(growth is not None and max(growth) > 1 + close for growth in (in_call, moved)))
        if found[-1]:
            factors.append(in_call if in_call is not None and max(in_call) > 1 + close else moved or [])
    measured, explained = _steps(run, factors[0]) if factors else ({}, {})
    return judged(run, found, measured, explained)


def _growth(lengths: torch.Tensor, samples: int = 1) -> list[float] | None:
    """What multiplies the lengths ``[positions * samples, heads]``, relative to the first position; None where that is
    not one factor for all heads.
    """
    ratios = lengths / lengths[:samples].repeat(len(lengths) // samples, 1).clamp_min(1e-30)
    factors = ratios.mean(1)
    return None if float((ratios - factors[:, None]).abs().max()) > 1e-3 else factors.tolist()


def _steps(run: Run, factors: list[float]) -> tuple[Measured, dict[str, str]]:
    """Where the factor first rises, and by how much, as ``1 + scale * log(1 + floor((position + first) / step))`` has
    it, positions counted from ``first``, 0 or 1.
    """
    measured: Measured = {"largest_factor": digits(max(factors)), "positions": len(factors)}
    if len(factors) < LEAST:
        return {"largest_factor": digits(max(factors))}, {}
    rise = next(index for index, factor in enumerate(factors) if factor > factors[0] * (1 + 1e-4))
    scale = (factors[rise] - 1) / torch.log(torch.tensor(2.0)).item()
    for first in (1, 0):
        counted = (torch.arange(len(factors)) + first) // max(rise + first, 1)
        fitted = 1 + scale * torch.log1p(counted.float())
        if float((fitted - torch.tensor(factors)).abs().max()) < NEAR * (max(factors) - factors[0]):
            measured |= {"step": rise + first, "scale": digits(scale, 3)}
            measured["counted"] = "(position + 1)" if first else "position"
            break
    return measured, explain(run, measured, {"step": STEPS, "scale": SCALES})


def position_embeddings(run: Run) -> Verdict:
    """What enters block 0 at successive positions of one repeated token: a vector of the position makes it differ."""
    change = added_by_position(run)
    return Verdict("yes" if change > tolerance(run) else "no", measured={"change": small(run, change)})


class _Enough(Exception):
    """Ends a forward of which no more is needed."""


@once
def added_by_position(run: Run) -> float:
    """Largest difference between what enters block 0 at the last positions of one repeated token, relative to it."""
    held: list[torch.Tensor] = []

    def keep(stream: torch.Tensor) -> torch.Tensor:
        held.append(stream.detach().float())
        raise _Enough

    entering: list[tuple[torch.nn.Module, Change]] = [(run.text.envoys[0]._module, keep)]
    with suppress(_Enough), hooks(entering):
        forward(run, token_ids(run, 1).repeat(1, LENGTH))
    stream = held[0]
    axis = next((axis for axis in range(stream.ndim - 1) if stream.shape[axis] == LENGTH), stream.ndim - 2)
    late = stream.movedim(axis, 0)[stream.shape[axis] // 2 :]
    return float((late - late[:1]).abs().max() / late.abs().max().clamp_min(1e-30))


def _temperature(measured: Measured, blocks: list[int] | None, total: int) -> str:
    step, scale = measured.get("step"), measured.get("scale")
    position = measured.get("counted")
    how = f": the factor is 1 + {scale:g}·log(1 + ⌊{position} / {step:g}⌋)" if step and scale and position else ""
    return (
        f"On {some(blocks or [], total)} queries are multiplied by a factor that grows with their place in the "
        f"call{how}."
    )


QUIRKS = (
    Quirk("attention-temperature", "Attention temperature", "text", attention_temperature, _temperature),
    Quirk(
        "position-embeddings",
        "Position embeddings",
        "text",
        position_embeddings,
        lambda m, b, n: "A vector of each position is added to the embedding before block 0.",
    ),
)
