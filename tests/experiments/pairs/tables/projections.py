"""Pairs for queries, keys and values on their way to the scores."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.experiments.pairs.attentions import OwnArithmetic, has, is_of, names, of_class, taking, then
from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import Same, each_block, in_turn, named_like, replaced

QUERIES_AND_KEYS = ("self_attn.q_norm", "self_attn.k_norm")
PROJECTIONS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


def copying(_: nn.Module) -> nn.Module:
    return Same()


def biased(out: torch.Tensor) -> torch.Tensor:
    return out + torch.linspace(-1, 1, out.shape[-1])


def normed(out: torch.Tensor) -> torch.Tensor:
    return nn.functional.rms_norm(out, out.shape[-1:])


def with_the_one_before(out: torch.Tensor) -> torch.Tensor:
    return out + out.roll(1, dims=1) / 2


def unbias(block: Any) -> None:
    for path in PROJECTIONS:
        block.get_submodule(path).bias.zero_()


def one_tap(block: Any) -> None:
    """A convolution whose kernel looks at the token's own position only."""
    for path in ("self_attn.k_sconv", "self_attn.v_sconv"):
        block.get_submodule(path).conv1d.weight[..., :-1] = 0


def choose(x: torch.Tensor) -> torch.Tensor:
    """The half of the numbers that is largest; the others are zero."""
    return x * (x >= x.topk(x.shape[-1] // 2, -1)[0][..., -1:])


def count(x: torch.Tensor) -> torch.Tensor:
    """What it gets; the largest of it is looked at and not used."""
    x.topk(2, -1)
    return x


def promise_experts(module: Any) -> None:
    """A config that says two of eight, whatever the modules do."""
    module.config.num_experts_per_tok, module.config.num_local_experts = 2, 8


def has_experts(module: Any) -> bool:
    few, many = (getattr(module.config, name, 0) for name in ("num_experts_per_tok", "num_local_experts"))
    return few < many


ONE_TAP = Twin("inkling_text", mutate=each_block(one_tap))

PAIRS = (
    Pair(
        "qk-norm",
        yes=Twin("cohere", "tiny-qk-norm"),
        no=Twin("cohere", "tiny-qk-norm", {"use_qk_norm": False}),
        mutants=(
            Mutant(
                Twin("cohere", "tiny-qk-norm", mutate=replaced(named_like(copying), *QUERIES_AND_KEYS)),
                names("use_qk_norm"),
                "no",
                "norms that only copy, under their names",
            ),
        ),
    ),
    Pair(
        "value-norm",
        yes=Twin("gemma4_text"),
        no=Twin("gemma4_text", mutate=replaced(copying, "self_attn.v_norm")),
        mutants=(
            Mutant(
                Twin("gemma4_text", mutate=replaced(named_like(copying), "self_attn.v_norm")),
                has("v_norm"),
                "no",
                "a Gemma4RMSNorm that only copies",
            ),
            Mutant(
                Twin("llama", mutate=replaced(then(normed), "self_attn.v_proj")),
                has("v_norm"),
                "yes",
                "a norm inside the value projection",
            ),
        ),
    ),
    Pair(
        "qkv-bias",
        yes=Twin("llama", config={"attention_bias": True}),
        no=Twin("llama"),
        mutants=(
            Mutant(
                Twin("llama", config={"attention_bias": True}, mutate=each_block(unbias)),
                names("attention_bias"),
                "no",
                "biases that are zero",
            ),
            Mutant(
                Twin("llama", mutate=replaced(then(biased), *PROJECTIONS)),
                names("attention_bias"),
                "yes",
                "a bias that no linear layer holds",
            ),
        ),
    ),
    Pair(
        "conv-qk",
        yes=Twin("inkling_text"),
        no=ONE_TAP,
        mutants=(
            Mutant(
                ONE_TAP,
                has("conv1d"),
                "no",
                "kernels that look at one position",
            ),
            Mutant(
                Twin("llama", mutate=replaced(then(with_the_one_before), "self_attn.q_proj")),
                has("conv1d"),
                "yes",
                "a projection that adds the position before",
            ),
        ),
    ),
    Pair(
        "attention-experts",
        yes=Twin("jetmoe"),
        no=Twin("jetmoe", config={"num_experts_per_tok": 8}),
        mutants=(
            Mutant(
                Twin("llama", mutate=taking(choose, "self_attn.o_proj")),
                has_experts,
                "yes",
                "a dense class that routes its heads' outputs",
            ),
            Mutant(
                Twin("jetmoe", config={"num_experts_per_tok": 8}, mutate=promise_experts),
                has_experts,
                "no",
                "a mixture of all its experts",
            ),
            Mutant(
                Twin("llama", mutate=in_turn(taking(count, "self_attn.o_proj"), promise_experts)),
                has_experts,
                "no",
                "a top-k that decides nothing",
            ),
        ),
    ),
    Pair(
        "own-attention-arithmetic",
        yes=Twin("gpt_neo"),
        no=Twin("arcee"),
        mutants=(
            Mutant(
                Twin("arcee", mutate=of_class(OwnArithmetic)),
                is_of("gpt_neo"),
                "yes",
                "an ArceeAttention that calls no interface",
            ),
        ),
    ),
)
