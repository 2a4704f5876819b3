"""What an attention does with its queries and keys: the scale of the scores, a cap, and what distance adds to them."""

from __future__ import annotations

import torch

from ...instruments.extra import once
from ...instruments.projected import projections
from ...measure.rounding import digits
from ...measure.run import Run
from ..answers import explain, phrase, small, spread, tolerance
from ..base import Measured, Quirk, Verdict, some
from .scores import Fit, fit_cap, fits, seen
from .traced import judged

__all__ = ["QUIRKS", "carried_factors", "fit_cap", "seen"]


def unscaled_scores(run: Run) -> Verdict:
    """Fits the factor between q·k and the scores: one where they are not scaled, 1/√head_dim or another number where
    they are. Queries or keys that are a multiple of what their projection gave carry the factor already.
    """
    queries, keys = carried_factors(run, "queries"), carried_factors(run, "keys")
    found = [
        None if fit is None else fit.kind != "other" and abs(fit.scale - 1) < tolerance(run) and carried == (None, None)
        for fit, carried in zip(fits(run), zip(queries, keys, strict=True), strict=True)
    ]
    scales = [fit.scale for fit in fits(run) if fit is not None and fit.kind != "other"]
    measured: Measured = {"scales": [digits(scale) for scale in spread(scales)]} if scales else {}
    for name, carried in (("queries_carry", queries), ("keys_carry", keys)):
        factors = sorted({digits(factor, 3) for factor in carried if factor is not None})
        if factors:
            measured[name] = factors[0] if len(factors) == 1 else factors
    formless = [fit is not None and fit.kind == "other" for fit in fits(run)]
    if any(formless) and all(fit is None or other for fit, other in zip(fits(run), formless, strict=True)):
        return Verdict("n/a", why=FORMLESS)
    return judged(run, found, measured)


FORMLESS = "The scores are more than a multiple of q·k, so no factor stands between the two."


@once
def carried_factors(run: Run, name: str) -> list[float | None]:
    """For each block the number that multiplies a projection's output on its way into the queries or keys; None where
    it is one, or where they are no multiple of it.
    """
    given = projections(run)
    found: list[float | None] = []
    for index, tapped in enumerate(given.taps):
        heads = getattr(tapped, name)
        outputs = [given.outputs.get((index, path)) for path in given.own[index]]
        ratios = [] if heads is None else [_ratio(heads[0], out, tolerance(run)) for out in outputs if out is not None]
        factor = next((ratio for ratio in ratios if ratio is not None), None)
        found.append(None if factor is None or abs(factor - 1) < tolerance(run) else factor)
    return found


def _ratio(heads: torch.Tensor, out: torch.Tensor, close: float) -> float | None:
    """The ratio between the lengths of a row's heads ``[heads, seq, head_dim]`` and of a projection's output
    ``[rows, seq, width]`` cut into as many; None where it is not the same everywhere.
    """
    if out.shape[-1] != heads.shape[0] * heads.shape[2]:
        return None
    plain = out[0].unflatten(-1, (heads.shape[0], -1)).norm(dim=-1).transpose(0, 1)
    if plain.shape != heads.shape[:2]:
        return None
    ratio = heads.float().norm(dim=-1) / plain.clamp_min(1e-30)
    return float(ratio.mean()) if float((ratio / ratio.mean() - 1).abs().max()) < close else None


def _of_kind(run: Run, kind: str) -> tuple[list[bool | None], list[Fit]]:
    found = [None if fit is None else fit.kind == kind for fit in fits(run)]
    return found, [fit for fit in fits(run) if fit is not None and fit.kind == kind]


def _left(run: Run) -> float:
    return max((fit.left for fit in fits(run) if fit is not None), default=0.0)


def softcapped_scores(run: Run) -> Verdict:
    """Fits scores against c·tanh(s·q·k / c): a straight line through all of them leaves nothing for a cap."""
    found, capped = _of_kind(run, "capped")
    measured: Measured = {"error_of_a_straight_line": small(run, _left(run))}
    if capped:
        measured["cap"] = digits(max(fit.cap or 0.0 for fit in capped))
    return judged(run, found, measured, explain(run, measured, {"cap": ["attn_logit_softcapping"]}))


def alibi(run: Run) -> Verdict:
    """What is left of the scores once s·q·k is taken off, fitted against the distance: nothing, or a slope a head."""
    found, sloped = _of_kind(run, "slope")
    slopes = [slope for fit in sloped for slope in fit.slopes]
    measured: Measured = {"slopes": [digits(slope, 3) for slope in spread(slopes)]} if slopes else {}
    return judged(run, found, measured or {"left": small(run, _left(run))})


def relative_bias(run: Run) -> Verdict:
    """The same, fitted with a number for each head and distance, where no straight line fits."""
    found, _ = _of_kind(run, "distance")
    return judged(run, found, {"error_of_products_alone": small(run, _left(run))})


def key_bias(run: Run) -> Verdict:
    """The same, fitted with a number for each head and key, the same for every query."""
    found, _ = _of_kind(run, "key")
    return judged(run, found, {"error_of_products_alone": small(run, _left(run))})


def other_scores(run: Run) -> Verdict:
    """Whether scores are s·q·k at all, capped or with a number added by distance or key: a remainder makes the answer
    yes.
    """
    found, _ = _of_kind(run, "other")
    return judged(run, found, {"error_of_products_alone": small(run, _left(run))})


QUIRKS = (
    Quirk(
        "unscaled-scores",
        "Unscaled scores",
        "text",
        unscaled_scores,
        lambda m, b, n: f"On {some(b or [], n)} the scores are q·k as they are, without a factor such as 1/√head_dim.",
    ),
    Quirk(
        "softcapped-scores",
        "Softcapped scores",
        "text",
        softcapped_scores,
        lambda m, b, n: (
            f"On {some(b or [], n)} a tanh caps the scores before the mask{phrase(m, 'cap', ', at ±{:g}')}."
        ),
    ),
    Quirk(
        "alibi",
        "ALiBi",
        "text",
        alibi,
        lambda m, b, n: (
            f"On {some(b or [], n)} each head's scores fall with distance along a straight line that is added to s·q·k."
        ),
    ),
    Quirk(
        "relative-bias",
        "Bias by distance",
        "text",
        relative_bias,
        lambda m, b, n: (
            f"On {some(b or [], n)} a number for each head and distance is added to s·q·k, along no straight line."
        ),
    ),
    Quirk(
        "key-bias",
        "Bias of each key",
        "text",
        key_bias,
        lambda m, b, n: (
            f"On {some(b or [], n)} a number for each head and key, the same for every query, is added to s·q·k."
        ),
    ),
    Quirk(
        "content-bias",
        "More than q·k in the scores",
        "text",
        other_scores,
        lambda m, b, n: (
            f"On {some(b or [], n)} the scores hold more than s·q·k, a cap and a bias by distance or key: queries "
            "and keys alone do not give them."
        ),
    ),
)
