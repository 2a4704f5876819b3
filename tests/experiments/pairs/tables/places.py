"""Pairs for positions that enter by another way than a rotation."""

from __future__ import annotations

from typing import Any

import torch

from tests.experiments.pairs.attentions import has, names, setting, then
from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import blocks, replaced


def with_table(module: Any) -> None:
    table = torch.randn(512, module.config.hidden_size, generator=torch.Generator().manual_seed(0))
    blocks(module)[0].register_forward_pre_hook(lambda _, args: (args[0] + table[: args[0].shape[1]], *args[1:]))


def growing(queries: torch.Tensor) -> torch.Tensor:
    return queries * (1 + torch.arange(queries.shape[1]) / 10)[:, None]


NO_TABLE = Twin("gpt2", mutate=lambda module: module.transformer.wpe.weight.zero_())

PAIRS = (
    Pair(
        "attention-temperature",
        yes=Twin("llama4_text"),
        no=Twin("llama4_text", config={"attn_temperature_tuning": False}),
        mutants=(
            Mutant(
                Twin("llama4_text", mutate=setting("attn_temperature_tuning", False)),
                names("attn_temperature_tuning"),
                "no",
                "a temperature that no attention uses",
            ),
            Mutant(
                Twin("arcee", mutate=replaced(then(growing), "self_attn.q_proj")),
                names("attn_temperature_tuning"),
                "yes",
                "queries that grow behind their projection",
            ),
        ),
    ),
    Pair(
        "position-embeddings",
        yes=Twin("gpt2"),
        no=NO_TABLE,
        mutants=(
            Mutant(NO_TABLE, has("wpe"), "no", "a table of zeros"),
            Mutant(Twin("arcee", mutate=with_table), has("wpe"), "yes", "a table that no module holds"),
        ),
    ),
)
