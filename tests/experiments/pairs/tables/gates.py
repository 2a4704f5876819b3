"""Pairs for norms with a gate."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.experiments.pairs.attentions import is_of
from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import blocks, named_like, replaced, with_forward


class GatedByItself(nn.Module):
    """A norm, and what it gives squashed as a gate for it."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = self.norm(x)
        return normed * torch.sigmoid(normed)


def gates_half_open(module: Any) -> None:
    """Every gate of a norm is a half, whatever the token is."""
    for part in module.modules():
        if hasattr(part, "fc2") and hasattr(part, "fc1"):
            part.fc2.weight.zero_()


def of_gated_norms(module: Any) -> bool:
    return any("GatedRMSNorm" in type(part).__name__ for part in module.modules())


def gate_last(self: Any, hidden_states: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    normed = nn.functional.rms_norm(hidden_states, hidden_states.shape[-1:]) * self.weight
    return normed * nn.functional.silu(gate)


def gate_first(module: Any) -> None:
    """The norm of each linear attention stands behind its gate, under its own class name."""

    def forward(self: Any, hidden_states: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        gated = hidden_states * nn.functional.silu(gate)
        return nn.functional.rms_norm(gated, gated.shape[-1:]) * self.weight

    for block in blocks(module):
        if hasattr(block, "linear_attn"):
            norm = block.linear_attn.norm
            norm.__class__ = type(type(norm).__name__, (type(norm),), {"forward": forward})


HALF_OPEN = Twin("axk2", mutate=gates_half_open)
GATE_LAST = Twin("mamba2", mutate=with_forward(gate_last, "mixer.norm"))

PAIRS = (
    Pair(
        "gated-norms",
        yes=Twin("axk2"),
        no=HALF_OPEN,
        mutants=(
            Mutant(HALF_OPEN, of_gated_norms, "no", "gates that stay as they are"),
            Mutant(
                Twin("mistral", mutate=replaced(named_like(GatedByItself), "post_attention_layernorm")),
                of_gated_norms,
                "yes",
                "a gate in a norm of a plain name",
                blocks=[0, 1, 2],
            ),
        ),
    ),
    Pair(
        "norm-behind-gate",
        yes=Twin("mamba2"),
        no=GATE_LAST,
        mutants=(
            Mutant(GATE_LAST, is_of("mamba2"), "no", "a gate that stands behind the norm"),
            Mutant(
                Twin("qwen3_next", mutate=gate_first), is_of("mamba2"), "yes", "another family's norm behind a gate"
            ),
        ),
    ),
)
