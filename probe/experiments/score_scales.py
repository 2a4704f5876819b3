"""The factor between q·k and the scores, and which of it is one over the root of the heads' width."""

from __future__ import annotations

from ..instruments.extra import layer_types
from ..measure.rounding import digits
from ..measure.run import Run
from ..schema import Fact
from .base import some
from .scores import fits, seen


def score_scales(run: Run) -> list[Fact]:
    """The factor between q·k and the scores, by kind of block where they differ."""
    scales: dict[str, set[float]] = {}
    fitting = []
    for index, (kind, fit) in enumerate(zip(layer_types(run), fits(run), strict=True)):
        if fit is not None and fit.kind != "other":
            scales.setdefault(kind, set()).add(digits(fit.scale))
            fitting.append(index)
    every = set().union(*scales.values())
    if len(every) == 1:
        value = every.pop()
        return [
            Fact(
                name="score_scale",
                label="Scale of the scores",
                value=value,
                statement=f"Scores are {_factor(run, value)} on {some(fitting, len(run.text))}.",
            )
        ]
    return [
        Fact(
            name=f"score_scale_{kind}",
            label=f"Scale of the scores, {kind.replace('_', ' ')}",
            value=value,
            statement=f"Scores are {_factor(run, value)} on blocks of {kind.replace('_', ' ')}.",
        )
        for kind, found in scales.items()
        for value in sorted(found)
    ]


def _factor(run: Run, value: float) -> str:
    if abs(value - 1) < 1e-3:
        return "q·k as they are"
    widths = {block.head_dim for block in seen(run) if block is not None}
    if len(widths) == 1 and abs(value * next(iter(widths)) ** 0.5 - 1) < 1e-3:
        return f"q·k times {value:g}, which is 1/√{next(iter(widths))}, one over the root of the heads' width,"
    return f"q·k times {value:g}"
