"""Pairs for weights that several blocks have in common."""

from __future__ import annotations

import copy
from typing import Any

from tests.experiments.pairs.attentions import is_of
from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import blocks


def own_copies(module: Any) -> None:
    """Every block has a copy of its own of what it had in common with others."""
    for block in blocks(module):
        if hasattr(block, "shared_transf"):
            block.shared_transf = copy.deepcopy(block.shared_transf)


def one_mlp_for_two(module: Any) -> None:
    """The third block's MLP has the first one's weights."""
    for name in ("gate_proj", "up_proj", "down_proj"):
        blocks(module)[2].mlp.get_submodule(name).weight = blocks(module)[0].mlp.get_submodule(name).weight


COPIES = Twin("zamba", mutate=own_copies)

PAIRS = (
    Pair(
        "shared-weights",
        yes=Twin("zamba"),
        no=COPIES,
        mutants=(
            Mutant(COPIES, is_of("zamba"), "no", "copies under the names of what is shared"),
            Mutant(
                Twin("mistral", mutate=one_mlp_for_two),
                is_of("zamba"),
                "yes",
                "weights of an MLP that two blocks hold",
                blocks=[0, 2],
            ),
        ),
    ),
)
