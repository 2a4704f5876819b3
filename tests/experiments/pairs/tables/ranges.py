"""Pairs for queries, keys and values that are clipped, and for scores that fall with depth."""

from __future__ import annotations

from typing import Any

import torch

from tests.experiments.pairs.attentions import is_of, names, then
from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import blocks, each_block, in_turn, replaced, set_config


def ignores_depth(block: Any) -> None:
    block.attn.scale_attn_by_inverse_layer_idx = False
    block.attn.scaling = block.attn.head_dim**-0.5


def smaller_with_depth(module: Any) -> None:
    for number, block in enumerate(blocks(module), 1):
        block.self_attn.scaling /= number


def of_one_length(x: torch.Tensor) -> torch.Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def clip(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(-2.5, 2.5)


def without_limit(block: Any) -> None:
    block.mlp.experts.limit = float("inf")


WITHOUT_LIMIT = Twin("gpt_oss", mutate=each_block(without_limit))

PAIRS = (
    Pair(
        "bounded-mlps",
        yes=Twin("gpt_oss"),
        no=WITHOUT_LIMIT,
        mutants=(
            Mutant(WITHOUT_LIMIT, is_of("gpt_oss"), "no", "a limit that is never reached"),
            Mutant(
                Twin("llama", mutate=replaced(then(clip), "mlp.up_proj", "mlp.gate_proj")),
                is_of("gpt_oss"),
                "yes",
                "projections of a plain MLP that are clipped",
                blocks=[0, 1, 2],
            ),
        ),
    ),
    Pair(
        "clipped-projections",
        yes=Twin("olmo", "tiny-clip"),
        no=Twin("olmo"),
        mutants=(
            Mutant(
                Twin("llama", mutate=replaced(then(clip), "self_attn.k_proj", "self_attn.v_proj")),
                names("clip_qkv"),
                "yes",
                "a limit that no config names",
                measured={"limit": 2.5},
            ),
            Mutant(
                Twin(
                    "llama", mutate=in_turn(set_config(clip_qkv=1.5), replaced(then(of_one_length), "self_attn.v_proj"))
                ),
                names("clip_qkv"),
                "no",
                "a limit that the class ignores, and values of one length",
            ),
        ),
    ),
    Pair(
        "depth-scaled-scores",
        yes=Twin("gpt2", "tiny-scaled-by-depth"),
        no=Twin("gpt2"),
        mutants=(
            Mutant(
                Twin("gpt2", "tiny-scaled-by-depth", mutate=each_block(ignores_depth)),
                names("scale_attn_by_inverse_layer_idx"),
                "no",
                "attentions that ignore the config's flag",
            ),
            Mutant(
                Twin("llama", mutate=smaller_with_depth),
                names("scale_attn_by_inverse_layer_idx"),
                "yes",
                "a factor that no config names",
                blocks=[0, 1, 2],
            ),
        ),
    ),
)
