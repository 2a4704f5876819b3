"""How an attention's scores come from queries and keys: the factor, a cap, and what is added by distance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from ...instruments.extra import attention_hosts, once
from ...instruments.tap import MASKED
from ...measure.run import Run
from ..answers import tolerance
from .traced import attention_value

Kind = Literal["product", "capped", "slope", "distance", "key", "other"]
Added = Literal["slope", "distance", "key"]


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
        return self.scores > MASKED


@once
def seen(run: Run) -> list[Seen | None]:
    """What was read of every block's attention; None where it has none or does not serve those values."""
    return [None if host is None else _seen(run, index) for index, host in enumerate(attention_hosts(run))]


def _seen(run: Run, index: int) -> Seen | None:
    names = ("queries", "keys", "values", "scores", "probabilities", "head_outputs")
    found = [attention_value(run, index, f"attention_{name}") for name in names]
    if any(value is None for value in found):
        return None
    queries, keys, values, scores, pattern, outputs = (value for value in found if value is not None)
    heads, size = queries.shape[1:3]
    if heads % keys.shape[1] or heads % values.shape[1] or queries.shape[-1] != keys.shape[-1]:
        return None
    keys, values = (tensor.repeat_interleave(heads // tensor.shape[1], dim=1) for tensor in (keys, values))
    products = queries @ keys.transpose(-1, -2)
    if products.shape != scores[..., : products.shape[-1]].shape or products.shape[-1] < size:
        return None
    width = products.shape[-1]
    premix = attention_value(run, index, "attention_premix")
    return Seen(products, scores[..., :width], pattern[..., :width], values, outputs, premix, queries.shape[-1])


@dataclass(frozen=True)
class Fit:
    """The form that a block's scores have.

    Attributes:
        kind: `product` for s·q·k; `capped` for c·tanh(s·q·k / c); `slope` where a number a head times the distance is
            added, `distance` where a number for each head and distance is, `key` where one for each head and key is;
            `other` where none of these fits.
        scale: s.
        cap: c.
        slopes: by how much a head's scores rise a position towards the key.
        left: largest difference from s·q·k alone, relative to the largest score.
    """

    kind: Kind
    scale: float
    left: float
    cap: float | None = None
    slopes: tuple[float, ...] = ()


@once
def fits(run: Run) -> list[Fit | None]:
    """The form of every block's scores; None where they could not be read."""
    return [None if block is None else fit(block, tolerance(run)) for block in seen(run)]


def fit(block: Seen, close: float) -> Fit:
    """The first form that leaves less than ``close``, relative to the largest score; a row's constant counts for
    nothing, since no softmax sees it.
    """
    visible = block.visible
    products, scores = (torch.where(visible, tensor, 0).double() for tensor in (block.products, block.scores))
    largest = max(float(scores.abs().max()), 1e-30)
    counts = visible.sum(-1, keepdim=True).clamp_min(1)
    x, y = (torch.where(visible, held - held.sum(-1, keepdim=True) / counts, 0) for held in (products, scores))
    scale = float((x * y).sum() / x.square().sum().clamp_min(1e-30))
    left = float((scale * x - y).abs().max()) / largest
    if left < close:
        return Fit("product", scale, left)
    sloped = _added(block, "slope", close * largest)
    if sloped is not None:
        scale, slopes = sloped
        return Fit("slope", scale, left, slopes=slopes)
    x, y = products[visible], scores[visible]
    cap, rest = fit_cap(x, y)
    if rest < close:
        small = y.abs() < 0.05 * cap
        slope = float((torch.atanh(y[small] / cap) * cap * x[small]).sum() / x[small].square().sum().clamp_min(1e-30))
        return Fit("capped", slope, left, cap=cap)
    for added in ("distance", "key"):
        for start in (0, block.scores.shape[2] // 2):
            biased = _added(block, added, close * largest, start)
            if biased is not None:
                return Fit(added, biased[0], left)
    return Fit("other", scale, left)


def _added(block: Seen, how: Added, room: float, start: int = 0) -> tuple[float, tuple[float, ...]] | None:
    """The factor of the products, and the slope of each head, where the products and something by distance or key make
    up the scores; None where more than ``room`` is left.

    Each head's scores from position ``start`` on are fitted by least squares on its products and the distance, as a
    number or as a class, or the key. A prompt that the model puts before the tokens may have other numbers.
    """
    size, width = block.scores.shape[-2:]
    query, key = torch.arange(size, device=block.scores.device), torch.arange(width, device=block.scores.device)
    distance = (query[:, None] - key[None]).to(torch.float64)
    late = (query[:, None] >= start) & (key[None] >= start)
    scales, slopes = [], []
    for head in range(block.scores.shape[1]):
        seen = block.visible[0, head] & late
        row = query[:, None].expand_as(distance)[seen]
        x, y = block.products[0, head][seen].double(), block.scores[0, head][seen].double()
        if how == "slope":
            by = distance[seen][:, None]
        else:
            number = distance[seen] if how == "distance" else key[None].expand_as(distance)[seen]
            by = torch.nn.functional.one_hot((number - number.min()).long()).double()
        columns, wanted = _centred(torch.cat([x[:, None], by], 1), row), _centred(y[:, None], row)
        solution = torch.linalg.pinv(columns.T @ columns, hermitian=True) @ (columns.T @ wanted)
        if float((columns @ solution - wanted).abs().max()) > room:
            return None
        scales.append(float(solution[0]))
        slopes.append(float(solution[1]))
    return sum(scales) / len(scales), tuple(slopes)


def _centred(values: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """Values less the mean of their row: ``[entries, columns]``, with the row of each entry."""
    sums = torch.zeros(int(row.max()) + 1, values.shape[1], dtype=values.dtype, device=values.device)
    counts = torch.bincount(row, minlength=len(sums)).clamp_min(1).to(values)
    means = sums.index_add(0, row, values) / counts[:, None]
    return values - means[row]


TRIED, ROUNDS = 20, 10
"""Caps tried at once, and how often the grid narrows to what is beside the best of them."""

SORTED, ENOUGH = 4096, 128
"""How many of the numbers are sorted, and by how many of those, small and large ones, a cap is searched; the one found
is tried on all there are.
"""


def fit_cap(plain: torch.Tensor, capped: torch.Tensor) -> tuple[float, float]:
    """The cap c of ``capped = c * tanh(s * plain / c)``, and the largest error that is left, relative to the largest.

    For a cap tried, ``atanh(capped / c) * c`` must be a multiple of ``plain``; the best one is searched on a grid that
    narrows.
    """
    plain, capped = plain.double().flatten(), capped.double().flatten()
    largest = float(capped.abs().max())
    low, high = largest * (1 + 1e-6), largest * 1e3
    step = max(1, len(capped) // SORTED)
    order = capped[::step].abs().argsort() * step
    chosen = order[torch.linspace(0, len(order) - 1, min(ENOUGH, len(order)), device=order.device).round().long()]

    def errors(plain: torch.Tensor, capped: torch.Tensor, caps: torch.Tensor) -> torch.Tensor:
        scales = (torch.atanh(capped / caps) * caps) @ plain / plain.square().sum().clamp_min(1e-30)
        return (caps * torch.tanh(scales[:, None] * plain / caps) - capped).abs().amax(1) / largest

    best = high
    for _ in range(ROUNDS):
        grid = torch.logspace(math.log10(low), math.log10(high), TRIED, dtype=torch.float64, device=plain.device)
        at = int(errors(plain[chosen], capped[chosen], grid[:, None]).argmin())
        best = float(grid[at])
        low, high = float(grid[max(at - 1, 0)]), float(grid[min(at + 1, TRIED - 1)])
    return best, float(errors(plain, capped, torch.full((1, 1), best, dtype=plain.dtype, device=plain.device)))
