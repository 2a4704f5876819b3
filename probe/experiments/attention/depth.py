"""Scores that are divided by the number of their block, counted from one."""

from __future__ import annotations

from ...measure.rounding import digits
from ...measure.run import Run
from ..answers import explain, tolerance
from ..base import Measured, Quirk, Verdict, some
from .arithmetic import FORMLESS, carried_factors
from .scores import fits, seen
from .traced import judged

FLAGS = ("scale_attn_by_inverse_layer_idx", "scale_attn_by_layer_idx", "apply_query_key_layer_scaling")
"""Config entries that may ask for it."""


def depth_scaled_scores(run: Run) -> Verdict:
    """Fits the factor between q·k and the scores on each block, with what queries and keys carry of it, and multiplies
    it by the root of the heads' width and by the block's number, counted from one: the same number everywhere means
    that a later block's scores are that much smaller.
    """
    scales = score_factors(run)
    if not scales and any(fits(run)):
        return Verdict("n/a", why=FORMLESS)
    undone = [scale * (index + 1) for index, scale in scales.items()]
    same = len(undone) > 1 and max(undone) - min(undone) < tolerance(run) * max(map(abs, undone))
    found = [same if index in scales else None for index in range(len(run.text))]
    measured: Measured = {}
    if scales:
        measured = {"first_scale": digits(scales[min(scales)]), "last_scale": digits(scales[max(scales)])}
        measured["divided_by_the_number"] = same
    return judged(run, found, measured, explain(run, measured, {"divided_by_the_number": FLAGS}) if same else {})


def score_factors(run: Run) -> dict[int, float]:
    """By block what q·k is multiplied by, queries' and keys' own parts too, times the root of the heads' width."""
    carried = zip(carried_factors(run, "queries"), carried_factors(run, "keys"), strict=True)
    scales: dict[int, float] = {}
    for index, (fit, block, (query, key)) in enumerate(zip(fits(run), seen(run), carried, strict=True)):
        if fit is not None and block is not None and fit.kind != "other":
            scales[index] = fit.scale * (query or 1.0) * (key or 1.0) * block.head_dim**0.5
    return scales


QUIRKS = (
    Quirk(
        "depth-scaled-scores",
        "Scores scaled by depth",
        "text",
        depth_scaled_scores,
        lambda m, b, n: (
            f"On {some(b or [], n)} the scores are divided by the number of their block, counted from one, beside the "
            "factor of the heads' width."
        ),
    ),
)
