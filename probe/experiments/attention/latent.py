"""Latent attention: values that all come out of a vector narrower than they are."""

from __future__ import annotations

import torch

from ...measure.run import Run
from ..answers import explain, phrase
from ..base import Measured, Quirk, Verdict, some
from .prompts import prompts
from .traced import judged

FULL = 1e-4
"""A direction counts where its singular value is at least this share of the largest one."""


NARROW = 0.75
"""Share of the directions below which values count as narrow: a norm's centring takes one or two of them."""


def latent_attention(run: Run) -> Verdict:
    """The rank of a block's values over the positions of different tokens, heads side by side and equal heads once:
    clearly less than the positions, the values' width and the stream's allow means that they pass a narrower vector.
    """
    found: list[bool | None] = [None] * len(run.text)
    ranks, wide = [], []
    for index, held in prompts(run).values.items():
        if held.ndim != 4:
            continue
        values = _distinct(held)
        rank = _rank(values)
        found[index] = rank < NARROW * min(*values.shape, run.model.hidden_size)
        ranks += [rank] if found[index] else []
        wide.append(values.shape[1])
    measured: Measured = {"rank": max(ranks), "width": max(wide)} if ranks else {}
    alike = len(set(ranks)) == 1
    return judged(run, found, measured, explain(run, measured, {"rank": ["kv_lora_rank"]}) if alike else {})


def _distinct(values: torch.Tensor) -> torch.Tensor:
    """``[positions, width]`` of values ``[batch, heads, seq, head_dim]``, with heads that are alike once."""
    heads: list[torch.Tensor] = []
    for head in values.float().unbind(1):
        if not any(torch.equal(head, other) for other in heads):
            heads.append(head)
    return torch.cat(heads, -1).flatten(0, 1)


def _rank(matrix: torch.Tensor) -> int:
    """By the eigenvalues of the smaller product of a matrix with itself, the squares of its singular values."""
    exact = matrix.double()
    squares = torch.linalg.eigvalsh(exact @ exact.T if exact.shape[0] < exact.shape[1] else exact.T @ exact)
    return int((squares > FULL**2 * squares[-1]).sum())


def _directions(measured: Measured) -> str:
    numbers = phrase(measured, "width", "{} numbers of ")
    return phrase(measured, "rank", f": {numbers}values vary in {{}} directions")


QUIRKS = (
    Quirk(
        "latent-attention",
        "Latent attention",
        "text",
        latent_attention,
        lambda m, b, n: (
            f"On {some(b or [], n)} keys and values come from one vector a token that is narrower than they are"
            f"{_directions(m)}."
        ),
    ),
)
