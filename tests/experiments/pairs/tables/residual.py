"""Pairs for what happens to the stream: norms of it, factors on what is added, modules that add it themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import blocks, each_block, in_turn, with_forward

Stream = torch.Tensor


def set_on_blocks(name: str, value: Any) -> Callable[[Any], None]:
    """A mutation of what the blocks took from the config when they were built."""
    return each_block(lambda block: setattr(block, name, value))


def norms_after(module: Any) -> bool:
    return not getattr(module.config, "do_layer_norm_before", True)


def multiplies(module: Any) -> bool:
    return getattr(module.config, "residual_multiplier", 1.0) != 1.0


def halved(self: Any, hidden_states: Stream, **kwargs: Any) -> Stream:
    attention = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)[0]
    hidden_states = hidden_states + attention * 0.5
    return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


def takes_the_residual(module: Any) -> bool:
    return "residual" in inspect.signature(blocks(module)[0].mlp.forward).parameters


def adds_nothing_to_the_mlp(self: Any, hidden_states: Stream, **kwargs: Any) -> Stream:
    hidden_states = hidden_states + self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)[0]
    return self.mlp(self.post_attention_layernorm(hidden_states), hidden_states)


def with_the_stream(self: Any, x: Stream, stream: Stream) -> Stream:
    return stream + self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


def without_the_stream(self: Any, x: Stream, residual: Stream | None = None) -> Stream:
    return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


INSIDE = in_turn(with_forward(adds_nothing_to_the_mlp), with_forward(with_the_stream, "mlp"))

PAIRS = (
    Pair(
        "post-ln",
        yes=Twin("opt", config={"do_layer_norm_before": False}),
        no=Twin("opt"),
        mutants=(
            Mutant(
                Twin("opt", mutate=set_on_blocks("do_layer_norm_before", False)),
                norms_after,
                "yes",
                "the blocks' flag says after and the config's before",
            ),
            Mutant(
                Twin("opt", config={"do_layer_norm_before": False}, mutate=set_on_blocks("do_layer_norm_before", True)),
                norms_after,
                "no",
                "the blocks' flag says before and the config's after",
            ),
        ),
    ),
    Pair(
        "scaled-residual-adds",
        yes=Twin("granite"),
        no=Twin("granite", config={"residual_multiplier": 1.0}),
        mutants=(
            Mutant(
                Twin("granite", mutate=set_on_blocks("residual_multiplier", 1.0)),
                multiplies,
                "no",
                "the blocks multiply by one, whatever the config says",
            ),
            Mutant(
                Twin("mistral", mutate=with_forward(halved)),
                multiplies,
                "yes",
                "no config entry names the factor",
                measured={"smallest": 0.5, "largest": 0.5},
            ),
        ),
    ),
    Pair(
        "residual-inside-module",
        yes=Twin("mistral", mutate=INSIDE),
        no=Twin("mistral"),
        mutants=(
            Mutant(Twin("mistral", mutate=INSIDE), takes_the_residual, "yes", "the argument has another name"),
            Mutant(
                Twin("mistral", mutate=with_forward(without_the_stream, "mlp")),
                takes_the_residual,
                "no",
                "an argument named residual is not used",
            ),
        ),
    ),
)
