"""The factor between q·k and the scores, and which of it is one over the root of the heads' width."""

from __future__ import annotations

from typing import Any

from ...instruments.extra import layer_types
from ...measure.rounding import digits
from ...measure.run import Run
from ...schema import Fact
from ..base import some
from .scores import fits, seen


def score_scales(run: Run) -> list[Fact]:
    """The factor between q·k and the scores, by kind of block where they differ."""
    scales: dict[str, dict[float, list[int]]] = {}
    for index, (kind, fit) in enumerate(zip(layer_types(run), fits(run), strict=True)):
        if fit is not None and fit.kind != "other":
            scales.setdefault(kind, {}).setdefault(digits(fit.scale), []).append(index)
    every = {value for found in scales.values() for value in found}
    if len(every) == 1:
        value = every.pop()
        fitting = sorted(index for found in scales.values() for index in found[value])
        return [
            Fact(
                name="score_scale",
                label="Scale of the scores",
                value=value,
                measured=_measured(run, value, fitting),
                statement=f"Scores are {_factor(run, value)} on {some(fitting, len(run.text))}.",
            )
        ]
    return [
        Fact(
            name=f"score_scale_{kind}",
            label=f"Scale of the scores, {kind.replace('_', ' ')}",
            value=value,
            measured=_measured(run, value, blocks),
            statement=f"Scores are {_factor(run, value)} on blocks of {kind.replace('_', ' ')}.",
        )
        for kind, found in scales.items()
        for value, blocks in sorted(found.items())
    ]


def _factor(run: Run, value: float) -> str:
    if abs(value - 1) < 1e-3:
        return "q·k as they are"
    root = _root(run, value)
    if root is not None:
        return f"q·k times {value:g}, which is 1/√{root}, one over the root of the heads' width,"
    return f"q·k times {value:g}"


def _root(run: Run, value: float) -> int | None:
    """The width of the heads where the factor is one over its root."""
    widths = {block.head_dim for block in seen(run) if block is not None}
    [width] = widths if len(widths) == 1 else [None]
    return width if width is not None and abs(value * width**0.5 - 1) < 1e-3 else None


def _measured(run: Run, value: float, blocks: list[int]) -> dict[str, Any]:
    root = _root(run, value)
    return {"blocks": blocks} | ({} if root is None else {"one_over_root_of": root})
