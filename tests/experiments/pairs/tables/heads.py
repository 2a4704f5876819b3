"""Pairs for what becomes of the values on the way to the output projection, and for the vector they come out of."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.experiments.pairs.attentions import has, names, taking
from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import Same, each_block, named_like, replaced

HEADS = "self_attn.o_proj"
NEVER = -1e9
"""A logit that no softmax gives a share, and below which no sigmoid is more than zero."""


def sinks(number: float) -> Any:
    """A mutation that gives every head's sink this logit."""
    return each_block(lambda block: block.self_attn.sinks.fill_(number))


class Constant(nn.Linear):
    """Gives one number for every input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.full((*x.shape[:-1], self.out_features), 40.0)


def always_open(before: Any) -> nn.Module:
    return Constant(before.in_features, before.out_features)


def by_themselves(heads: torch.Tensor) -> torch.Tensor:
    """Heads multiplied by a gate that is made of them, without a projection of its own."""
    return heads * heads.sigmoid()


def turned(heads: torch.Tensor) -> torch.Tensor:
    """The four heads' numbers in the reverse order."""
    return heads.unflatten(-1, (-1, 8)).flip(-1).flatten(-2)


def normed(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.rms_norm(x, x.shape[-1:])


class Gain(nn.Module):
    """Multiplies by a norm's gain, and does not norm."""

    def __init__(self, before: Any) -> None:
        super().__init__()
        self.weight = before.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def narrow(block: Any) -> None:
    """A value projection of rank five."""
    weight = block.self_attn.v_proj.weight
    left, strength, right = torch.linalg.svd(weight, full_matrices=False)
    weight.copy_(left[:, :5] * strength[:5] @ right[:5])


def promise_a_rank(module: Any) -> None:
    module.config.kv_lora_rank = 28


def names_a_rank(module: Any) -> bool:
    return 0 < getattr(module.config, "kv_lora_rank", 0) < module.config.hidden_size


SINKLESS = Twin("gpt_oss", mutate=sinks(NEVER))
UNSCALED = Twin("granite_swa", mutate=sinks(NEVER))
SUB_NORMS = ("self_attn.attn_sub_norm", "mlp.ffn_sub_norm")

PAIRS = (
    Pair(
        "attention-sink",
        yes=Twin("gpt_oss"),
        no=SINKLESS,
        mutants=(
            Mutant(SINKLESS, has("sinks"), "no", "sinks that no softmax gives a share"),
            Mutant(Twin("granite_swa", mutate=sinks(0.5)), has("sinks"), "no", "sinks that scale the heads"),
        ),
    ),
    Pair(
        "sink-scaled-heads",
        yes=Twin("granite_swa"),
        no=UNSCALED,
        mutants=(Mutant(UNSCALED, has("sinks"), "no", "sinks that leave the heads as they are"),),
    ),
    Pair(
        "output-gate",
        yes=Twin("lfm3"),
        no=Twin("lfm3", config={"use_attention_gate": False}),
        mutants=(
            Mutant(
                Twin("lfm3", mutate=replaced(named_like(always_open), "self_attn.g_proj")),
                names("use_attention_gate"),
                "no",
                "a gate that is always open",
            ),
            Mutant(
                Twin("llama", mutate=taking(by_themselves, HEADS)),
                names("use_attention_gate"),
                "yes",
                "a gate without a projection",
            ),
        ),
    ),
    Pair(
        "turned-heads",
        yes=Twin("llama", mutate=taking(turned, HEADS)),
        no=Twin("llama"),
        mutants=(
            Mutant(Twin("arcee", mutate=taking(turned, HEADS)), has("turn"), "yes", "a turn that no module names"),
        ),
    ),
    Pair(
        "sub-norms",
        yes=Twin("bitnet"),
        no=Twin("bitnet", mutate=replaced(lambda _: Same(), *SUB_NORMS)),
        mutants=(
            Mutant(
                Twin("bitnet", mutate=replaced(named_like(Gain), *SUB_NORMS)),
                has("attn_sub_norm"),
                "no",
                "a BitNetRMSNorm that only multiplies by its gain",
            ),
            Mutant(Twin("llama", mutate=taking(normed, HEADS)), has("attn_sub_norm"), "yes", "a norm without a module"),
        ),
    ),
    Pair(
        "latent-attention",
        yes=Twin("deepseek_v3"),
        no=Twin("deepseek_v3", config={"kv_lora_rank": 160}),
        mutants=(
            Mutant(Twin("llama", mutate=each_block(narrow)), names_a_rank, "yes", "a projection of low rank"),
            Mutant(
                Twin("deepseek_v3", config={"kv_lora_rank": 160}, mutate=promise_a_rank),
                names_a_rank,
                "no",
                "a vector that is wider than the config says",
            ),
        ),
    ),
)
