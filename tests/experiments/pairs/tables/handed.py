"""Pairs for what a block takes from other blocks beside its stream."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.experiments.pairs.attentions import calling, has
from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import blocks


def hears_no_earlier_router(module: Any) -> None:
    """What a router adds of the earlier block's router is multiplied by zero."""
    for block in blocks(module)[1:]:
        block.mlp.gate.router_states_scale.zero_()


def remembers(module: Any) -> None:
    """The third block's MLP adds what the first block's MLP gave."""
    first, third = blocks(module)[0].mlp, blocks(module)[2].mlp
    kept: list[torch.Tensor] = []

    def keep(_: nn.Module, __: Any, out: torch.Tensor) -> None:
        kept[:] = [out]

    first.register_forward_hook(keep)
    third.register_forward_hook(lambda _, __, out: out + kept[0])


def names_shared_indices(module: Any) -> bool:
    return "shared" in getattr(module.config, "indexer_types", ())


def latest_keys(_: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keys before each query, in place of those that an earlier block chose."""
    given = kwargs.get("prev_topk_indices")
    if given is None:
        return {}
    place = torch.arange(given.shape[1])[:, None] - torch.arange(given.shape[2])
    return {"prev_topk_indices": place.clamp_min(0).to(given.dtype).expand_as(given)}


def follows(module: Any) -> None:
    """The third block's indexer runs, and gives what the second block's gave."""
    kept: list[torch.Tensor] = []

    def keep(_: nn.Module, __: Any, out: torch.Tensor) -> None:
        kept[:] = [out]

    blocks(module)[1].self_attn.indexer.register_forward_hook(keep)
    blocks(module)[2].self_attn.indexer.register_forward_hook(lambda *_: kept[0])


DEAF = Twin("zaya", mutate=hears_no_earlier_router)

PAIRS = (
    Pair(
        "handed-state",
        yes=Twin("zaya"),
        no=DEAF,
        mutants=(
            Mutant(DEAF, has("router_states_scale"), "no", "what is handed on is multiplied by zero"),
            Mutant(
                Twin("mistral", mutate=remembers),
                has("router_states_scale"),
                "yes",
                "an MLP's output that is kept for a later block",
                blocks=[2],
            ),
        ),
    ),
    Pair(
        "shared-indices",
        yes=Twin("glm_moe_dsa", "tiny-shared-index"),
        no=Twin("glm_moe_dsa"),
        mutants=(
            Mutant(
                Twin("glm_moe_dsa", "tiny-shared-index", mutate=calling(latest_keys)),
                names_shared_indices,
                "no",
                "the latest keys in place of the choice that is handed on",
            ),
            Mutant(
                Twin("glm_moe_dsa", mutate=follows),
                names_shared_indices,
                "yes",
                "an indexer of its own whose choice is another's",
                blocks=[2],
            ),
        ),
    ),
)
