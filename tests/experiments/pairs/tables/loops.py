"""Pairs for blocks that one forward runs several times."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from tests.experiments.pairs.attentions import has
from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import blocks


def names_loops(module: Any) -> bool:
    return getattr(module.config, "n_recurrent_loops", 1) > 1


def runs_once(module: Any) -> None:
    """The decoder runs every block once, whatever the model's own config says."""
    module.model.config = copy.copy(module.config)
    module.model.config.n_recurrent_loops = 1


def runs_one_again(module: Any) -> None:
    """What enters the third block passes the second once more before."""
    second, third = blocks(module)[1:3]

    def again(_: nn.Module, args: tuple[torch.Tensor, ...], kwargs: dict[str, Any]) -> Any:
        return (second(args[0], **{**kwargs, "cache": None}), *args[1:]), kwargs

    third.register_forward_pre_hook(again, with_kwargs=True)


def one_more(module: Any) -> None:
    """A copy of the second block stands beside the list, and what enters the third passes it."""
    module.model.behind = copy.deepcopy(blocks(module)[1])

    def through(_: nn.Module, args: tuple[torch.Tensor, ...], kwargs: dict[str, Any]) -> Any:
        return (module.model.behind(args[0], **{**kwargs, "cache": None}), *args[1:]), kwargs

    blocks(module)[2].register_forward_pre_hook(through, with_kwargs=True)


def idle(module: Any) -> None:
    """A copy of the second block stands beside the list, and is not run."""
    module.model.H_module = copy.deepcopy(blocks(module)[1])


PAIRS = (
    Pair(
        "unlisted-blocks",
        yes=Twin("hrm_text"),
        no=Twin("llama", mutate=idle),
        mutants=(
            Mutant(Twin("llama", mutate=idle), has("H_module"), "no", "a block that is not run"),
            Mutant(
                Twin("llama", mutate=one_more),
                has("H_module"),
                "yes",
                "a block of another name",
                measured={"unlisted": 1},
            ),
        ),
    ),
    Pair(
        "looped-blocks",
        yes=Twin("dory"),
        no=Twin("dory", config={"n_recurrent_loops": 1}),
        mutants=(
            Mutant(Twin("dory", mutate=runs_once), names_loops, "no", "a config that names loops"),
            Mutant(
                Twin("mistral", mutate=runs_one_again),
                names_loops,
                "yes",
                "a block that is called again",
                blocks=[1],
                measured={"passes": 2},
            ),
        ),
    ),
)
