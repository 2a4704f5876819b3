"""Latent attention: values that all come out of a vector narrower than they are."""

from __future__ import annotations

import torch

from ..measure.run import Run
from ..measure.trace import read_all
from .base import Measured, Quirk, Verdict, some
from .scores import seen
from .traced import judged

FULL = 1e-4
"""A direction counts where its singular value is at least this share of the largest one."""


NARROW = 0.75
"""Share of the directions below which values count as narrow: a norm's centring takes one or two of them."""

MOST = 1024
"""Most tokens of the forward that tells."""


def latent_attention(run: Run) -> Verdict:
    """The rank of a block's values over the positions of different tokens, heads side by side and equal heads once:
    clearly less than the positions, the values' width and the stream's allow means that they pass a narrower vector.
    """
    wide = [_distinct(block.values).shape[1] for block in seen(run) if block is not None]
    if not wide:
        return judged(run, [None] * len(run.text), {})
    count = min(MOST, run.model.vocab_size, 8 + min(run.model.hidden_size, max(wide)))
    ids = torch.randperm(run.model.vocab_size, generator=torch.Generator().manual_seed(0))[None, :count]
    ids = ids.to(run.model.device)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    read = read_all(
        run.model, inputs, lambda key: key.name == "attention_values" and key.host.startswith(run.text.label)
    )
    found: list[bool | None] = [None] * len(run.text)
    ranks: list[int] = []
    for key, held in read.items():
        if key.block is None or held.ndim != 4:
            continue
        values = _distinct(held)
        rank = _rank(values)
        latent = rank < NARROW * min(*values.shape, run.model.hidden_size)
        found[key.block] = latent or bool(found[key.block])
        ranks += [rank] if latent else []
    measured: Measured = {"rank": max(ranks), "width": max(wide)} if ranks else {}
    return judged(run, found, measured)


def _distinct(values: torch.Tensor) -> torch.Tensor:
    """``[positions, width]`` of values ``[batch, heads, seq, head_dim]``, with heads that are alike once."""
    heads: list[torch.Tensor] = []
    for head in values.float().unbind(1):
        if not any(torch.equal(head, other) for other in heads):
            heads.append(head)
    return torch.cat(heads, -1).flatten(0, 1)


def _rank(matrix: torch.Tensor) -> int:
    strength = torch.linalg.svdvals(matrix.double())
    return int((strength > FULL * strength[0]).sum())


QUIRKS = (
    Quirk(
        "latent-attention",
        "Latent attention",
        "text",
        latent_attention,
        lambda m, b, n: (
            f"On {some(b or [], n)} keys and values come from one vector a token that is narrower than they are"
            + (f": {m['width']} numbers of values vary in {m['rank']} directions." if m else ".")
        ),
    ),
)
