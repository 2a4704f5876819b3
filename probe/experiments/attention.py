"""What an attention does with its queries, keys and values: scores, softmax, heads, and the way to its output
projection.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ..measure.checks import HIDDEN, fitted_scale
from ..measure.rounding import digits
from ..measure.run import Run
from .answers import explain, per_block, phrase, small, spread, tolerance
from .base import Measured, Quirk, Verdict, some
from .extra import once


@dataclass
class Seen:
    """One block's attention on the prompt, in float32, with shared keys and values repeated for their heads."""

    products: torch.Tensor
    scores: torch.Tensor
    pattern: torch.Tensor
    values: torch.Tensor
    outputs: torch.Tensor
    premix: torch.Tensor | None
    head_dim: int

    @property
    def visible(self) -> torch.Tensor:
        return self.scores > -HIDDEN


@once
def seen(run: Run) -> list[Seen | None]:
    """What was read of every block's attention; None where the block does not serve those values."""
    return [_seen(run, index) for index in range(len(run.text))]


def _seen(run: Run, index: int) -> Seen | None:
    names = (
        "attention_queries",
        "attention_keys",
        "attention_values",
        "attention_scores",
        "attention_probabilities",
        "attention_head_outputs",
    )
    found = [run.text.get(index, "self_attn", name) for name in names]
    if any(value is None for value in found):
        return None
    queries, keys, values, scores, pattern, outputs = (value for value in found if value is not None)
    keys, values = (tensor.repeat_interleave(queries.shape[1] // tensor.shape[1], dim=1) for tensor in (keys, values))
    premix = run.text.get(index, "self_attn", "attention_premix")
    size = queries.shape[2]
    return Seen(
        queries @ keys.transpose(-1, -2),
        scores[..., :size],
        pattern[..., :size],
        values,
        outputs,
        premix,
        queries.shape[-1],
    )


NO_SCORES = "The scores and the pattern of this attention were not read."


def _scales(run: Run) -> list[float | None]:
    return [None if block is None else fitted_scale(block.scores, block.products) for block in seen(run)]


def unscaled_scores(run: Run) -> Verdict:
    """Fits the factor between q·k and the scores: one where they are not scaled, 1/√head_dim or another number
    where they are.
    """
    scales = _scales(run)
    known = [scale for scale in scales if scale is not None]
    found = [None if scale is None else abs(scale - 1) < tolerance(run) for scale in scales]
    measured: Measured = {"scales": [digits(scale) for scale in spread(known)]} if known else {}
    return per_block(found, measured, unknown=NO_SCORES)


def softcapped_scores(run: Run) -> Verdict:
    """Fits scores against c·tanh(s·q·k / c): a straight line through all of them leaves nothing for a cap."""
    found: list[bool | None] = []
    caps = []
    straight = []
    for block in seen(run):
        if block is None:
            found.append(None)
            continue
        products, scores = block.products[block.visible], block.scores[block.visible]
        error = float((fitted_scale(block.scores, block.products) * products - scores).abs().max() / scores.abs().max())
        straight.append(error)
        cap, left = fit_cap(products, scores) if error > tolerance(run) else (math.inf, 0.0)
        found.append(error > tolerance(run) and left < tolerance(run))
        if found[-1]:
            caps.append(cap)
    measured: Measured = {"error_of_a_straight_line": small(run, max(straight, default=0.0))}
    if caps:
        measured["cap"] = digits(max(caps))
    return per_block(found, measured, explain(run, measured, {"cap": ["attn_logit_softcapping"]}), unknown=NO_SCORES)


def fit_cap(plain: torch.Tensor, capped: torch.Tensor) -> tuple[float, float]:
    """The cap c of ``capped = c * tanh(s * plain / c)``, and the largest error that is left, relative to ``capped``.

    For a cap tried, ``atanh(capped / c) * c`` must be a multiple of ``plain``; the best one is searched on a grid that
    narrows.
    """
    plain, capped = plain.double().flatten(), capped.double().flatten()
    largest = float(capped.abs().max())
    low, high = largest * (1 + 1e-6), largest * 1e3

    def error(cap: float) -> float:
        straight = torch.atanh(capped / cap) * cap
        scale = (straight * plain).sum() / plain.square().sum().clamp_min(1e-30)
        return float((cap * torch.tanh(scale * plain / cap) - capped).abs().max() / largest)

    best = high
    for _ in range(8):
        grid = torch.logspace(
            torch.log10(torch.tensor(low)), torch.log10(torch.tensor(high)), 40, dtype=torch.float64
        ).tolist()
        errors = [error(cap) for cap in grid]
        at = min(range(len(grid)), key=errors.__getitem__)
        best, low, high = grid[at], grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)]
    return best, error(best)


def alibi(run: Run) -> Verdict:
    """What is left of the scores once s·q·k is taken off, fitted against the distance: nothing, or a slope a head."""
    found: list[bool | None] = []
    slopes: list[float] = []
    left = 0.0
    for block in seen(run):
        if block is None:
            found.append(None)
            continue
        size = block.scores.shape[-1]
        distance = (torch.arange(size)[:, None] - torch.arange(size)[None]).to(block.scores).expand_as(block.scores)
        heads = [
            _two(block.products[:, h], distance[:, h], block.scores[:, h], block.visible[:, h])
            for h in range(block.scores.shape[1])
        ]
        scale = float(block.scores[block.visible].abs().max())
        left = max(left, max(rest for _, _, rest in heads) / scale)
        bent = max(abs(slope) for _, slope, _ in heads) * size > tolerance(run) * scale
        found.append(bent and max(rest for _, _, rest in heads) < tolerance(run) * scale)
        if found[-1]:
            slopes += [slope for _, slope, _ in heads]
    measured: Measured = (
        {"slopes": [digits(slope, 3) for slope in spread(slopes)]} if slopes else {"left": small(run, left)}
    )
    return per_block(found, measured, unknown=NO_SCORES)


def _two(
    products: torch.Tensor, distance: torch.Tensor, scores: torch.Tensor, visible: torch.Tensor
) -> tuple[float, float, float]:
    """Least squares of scores on products and distance: both coefficients and the largest difference left."""
    columns = torch.stack([products[visible], distance[visible]], dim=1).double()
    solution = torch.linalg.lstsq(columns, scores[visible].double()).solution
    return float(solution[0]), float(solution[1]), float((columns @ solution - scores[visible]).abs().max())


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
)
