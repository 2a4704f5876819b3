"""Pairs for who sees whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.experiments.pairs.attentions import calling, names
from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import each_block

HIDDEN = -1e30
"""What a mask adds where a query may not look."""


def seeing(visible: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], path: str = "self_attn") -> Any:
    """A mutation that gives every attention a mask of its own, from the places of queries and keys."""

    def mask(_: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        place = torch.arange(kwargs["hidden_states"].shape[1])
        seen = visible(place[:, None], place[None])
        return {"attention_mask": torch.zeros(seen.shape).masked_fill(~seen, HIDDEN)[None, None]}

    return calling(mask, path)


def causal(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return key <= query


def band(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return (key <= query) & (query - key < 8)


def chunk(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return (key <= query) & (query // 8 == key // 8)


def two_ways(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return (key <= query) | (key - query < 3)


def with_a_window(module: Any) -> None:
    module.config.sliding_window = 8


def latest(indexer: nn.Module, args: Any, out: torch.Tensor) -> torch.Tensor:
    """The keys before each query, whatever the indexer chose."""
    place = torch.arange(out.shape[1])[:, None] - torch.arange(out.shape[2])
    return place.clamp_min(0).to(out.dtype).expand_as(out)


def drop_tokens(_: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Hides the tokens whose stream starts with a low number from all others."""
    hidden = kwargs["hidden_states"]
    place = torch.arange(hidden.shape[1])
    dropped = (hidden[:, :, 0] < -0.5)[:, None, None] & (place[:, None] != place[None])
    return {"attention_mask": kwargs["attention_mask"].masked_fill(dropped, HIDDEN)}


def chooses_few(module: Any) -> bool:
    return 0 < getattr(module.config, "index_topk", 0) < module.config.max_position_embeddings


def promises_both_ways(module: Any) -> bool:
    return module.config.get_text_config().use_bidirectional_attention == "vision"


BOTH_WAYS = "text_config.use_bidirectional_attention"

PAIRS = (
    Pair(
        "sliding-window",
        yes=Twin("mistral"),
        no=Twin("mistral", config={"sliding_window": None}),
        mutants=(
            Mutant(
                Twin("arcee", mutate=with_a_window), names("sliding_window"), "no", "a window that the class ignores"
            ),
            Mutant(Twin("mistral", mutate=seeing(chunk)), names("sliding_window"), "no", "chunks instead of a window"),
            Mutant(Twin("arcee", mutate=seeing(band)), names("sliding_window"), "yes", "a window that no config names"),
        ),
    ),
    Pair(
        "chunked-attention",
        yes=Twin("llama4_text"),
        no=Twin("llama4_text", config={"attention_chunk_size": None}),
        mutants=(
            Mutant(
                Twin("llama4_text", mutate=seeing(band)),
                names("attention_chunk_size"),
                "no",
                "a window instead of chunks",
            ),
            Mutant(
                Twin("arcee", mutate=seeing(chunk)), names("attention_chunk_size"), "yes", "chunks that no config names"
            ),
        ),
    ),
    Pair(
        "sparse-attention",
        yes=Twin("deepseek_v32"),
        no=Twin("deepseek_v32", config={"index_topk": 8192}),
        mutants=(
            Mutant(
                Twin(
                    "deepseek_v32",
                    mutate=each_block(lambda block: block.self_attn.indexer.register_forward_hook(latest)),
                ),
                chooses_few,
                "no",
                "an indexer that always takes the latest keys",
            ),
            Mutant(Twin("arcee", mutate=calling(drop_tokens)), chooses_few, "yes", "tokens that hide themselves"),
        ),
    ),
    Pair(
        "bidirectional-images",
        yes=Twin("gemma4_text", "tiny-moe"),
        no=Twin("gemma4_text", "tiny-moe", config={BOTH_WAYS: None}),
        mutants=(
            Mutant(
                Twin("gemma4_text", "tiny-moe", mutate=seeing(causal)),
                promises_both_ways,
                "no",
                "a causal mask for images too",
            ),
            Mutant(
                Twin("gemma4_text", "tiny-moe", mutate=seeing(two_ways)),
                promises_both_ways,
                "no",
                "a mask that looks ahead in text too",
            ),
        ),
    ),
)
