"""Pairs for counts and widths."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import blocks, set_config
from tests.experiments.pairs.parts import linear


def narrow(module: Any) -> None:
    """The second block's MLP is half as wide."""
    mlp = blocks(module)[1].mlp
    width, inner = mlp.down_proj.out_features, mlp.down_proj.in_features // 2
    mlp.gate_proj, mlp.up_proj = linear(width, inner, "gate"), linear(width, inner, "up")
    mlp.down_proj = linear(inner, width, "down")


def names_widths(module: Any) -> bool:
    return isinstance(module.config.intermediate_size, list)


def names_groups(module: Any) -> bool:
    return 1 < module.config.num_key_value_heads < module.config.num_attention_heads


def names_one(module: Any) -> bool:
    return module.config.num_key_value_heads == 1


def says_tied(module: Any) -> bool:
    return bool(module.config.tie_word_embeddings)


def parted(module: Any) -> None:
    """The head gets a matrix of its own with the same numbers."""
    module.lm_head.weight = nn.Parameter(module.model.embed_tokens.weight.clone())


def joined(module: Any) -> None:
    module.lm_head.weight = module.model.embed_tokens.weight


class Reading(nn.Linear):
    """A head with a matrix of its own that multiplies with the embedding table."""

    def forward(self, x: Any) -> Any:
        return nn.functional.linear(x, self.table[0])


def read(module: Any) -> None:
    module.lm_head.__class__ = Reading
    module.lm_head.table = [module.model.embed_tokens.weight]


EQUAL = {"num_key_value_heads": 6}
TIED = {"tie_word_embeddings": True}

PAIRS = (
    Pair(
        "per-block-sizes",
        yes=Twin("mistral", mutate=narrow),
        no=Twin("mistral"),
        mutants=(Mutant(Twin("mistral", mutate=narrow), names_widths, "yes", "the config names one width"),),
    ),
    Pair(
        "grouped-query",
        yes=Twin("mistral"),
        no=Twin("mistral", config=EQUAL),
        mutants=(
            Mutant(
                Twin("mistral", mutate=set_config(num_key_value_heads=6)),
                names_groups,
                "yes",
                "the config names as many heads of keys as of queries",
            ),
            Mutant(
                Twin("mistral", config=EQUAL, mutate=set_config(num_key_value_heads=2)),
                names_groups,
                "no",
                "the config names fewer heads of keys",
            ),
        ),
    ),
    Pair(
        "multi-query",
        yes=Twin("mistral", config={"num_key_value_heads": 1}),
        no=Twin("mistral"),
        mutants=(
            Mutant(
                Twin("mistral", config={"num_key_value_heads": 1}, mutate=set_config(num_key_value_heads=2)),
                names_one,
                "yes",
                "the config names two heads of keys",
            ),
            Mutant(
                Twin("mistral", mutate=set_config(num_key_value_heads=1)), names_one, "no", "the config names one head"
            ),
        ),
    ),
    Pair(
        "tied-weights",
        yes=Twin("mistral", config=TIED),
        no=Twin("mistral"),
        mutants=(
            Mutant(Twin("mistral", config=TIED, mutate=parted), says_tied, "no", "equal numbers in two matrices"),
            Mutant(Twin("mistral", mutate=joined), says_tied, "yes", "one matrix that the config says nothing of"),
            Mutant(Twin("mistral", mutate=read), says_tied, "yes", "the head's own matrix is not used"),
        ),
    ),
)
