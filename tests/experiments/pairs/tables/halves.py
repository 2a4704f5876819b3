"""A pair for the stream's dtype in a half-precision load."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import blocks, each_block


def names_float32(module: Any) -> bool:
    return bool(getattr(module.config, "residual_in_fp32", False))


def kept_in_float32(module: Any) -> None:
    """The stream enters the first block in float32, and sublayers take it in their weights' dtype."""

    def cast(part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        dtype = next(part.parameters()).dtype
        given = {name: value.to(dtype) if name == "hidden_states" else value for name, value in kwargs.items()}
        return tuple(arg.to(dtype) if isinstance(arg, torch.Tensor) else arg for arg in args), given

    for block in blocks(module):
        block.register_forward_pre_hook(lambda _, args: (args[0].float(), *args[1:]))
        block.self_attn.register_forward_pre_hook(cast, with_kwargs=True)
        block.mlp.register_forward_pre_hook(cast, with_kwargs=True)


PAIRS = (
    Pair(
        "fp32-residual",
        yes=Twin("mamba"),
        no=Twin("mamba", config={"residual_in_fp32": False}),
        mutants=(
            Mutant(
                Twin("mamba", mutate=each_block(lambda block: setattr(block, "residual_in_fp32", False))),
                names_float32,
                "no",
                "the blocks' flag says no and the config's yes",
            ),
            Mutant(
                Twin("mistral", mutate=kept_in_float32),
                names_float32,
                "yes",
                "no config entry names it",
                blocks=[0, 1, 2],
            ),
        ),
    ),
)
