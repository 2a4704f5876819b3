"""Pairs for the norms around a block's sublayers, and for how these join the stream."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import (
    Same,
    blocks,
    each_block,
    in_turn,
    named_like,
    replaced,
    with_forward,
)
from tests.experiments.pairs.parts import RMS, RunningMean

Stream = torch.Tensor


def with_child(name: str, make: Callable[[Any], nn.Module]) -> Callable[[Any], None]:
    """A mutation that adds a child to every block."""
    return each_block(lambda block: block.add_module(name, make(block)))


def same(_: Any) -> Same:
    return Same()


# norms around the sublayers


def normed_between(self: Any, hidden_states: Stream, **kwargs: Any) -> Stream:
    attention = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)[0]
    hidden_states = hidden_states + self.first(attention)
    return hidden_states + self.second(self.mlp(self.post_attention_layernorm(hidden_states)))


def normed_before(self: Any, hidden_states: Stream, **kwargs: Any) -> Stream:
    """The norms that are called post-norms, in front of their sublayers."""
    hidden_states = hidden_states + self.self_attn(self.post_attention_layernorm(hidden_states), **kwargs)[0]
    return hidden_states + self.mlp(self.post_feedforward_layernorm(hidden_states))


POST = ("post_attention_layernorm", "post_feedforward_layernorm")
PRE = ("input_layernorm", "pre_feedforward_layernorm")


def has_both_norms(module: Any) -> bool:
    return all(hasattr(blocks(module)[0], name) for name in (*PRE, *POST))


def has_post_norms_alone(module: Any) -> bool:
    return hasattr(blocks(module)[0], POST[1]) and not hasattr(blocks(module)[0], PRE[0])


NORMS = (
    Pair(
        "sandwich-norms",
        yes=Twin("gemma3_text"),
        no=Twin("gemma3_text", mutate=replaced(same, *POST)),
        mutants=(
            Mutant(
                Twin("gemma3_text", mutate=replaced(named_like(same), *POST)),
                has_both_norms,
                "no",
                "the norms behind the sublayers change nothing",
            ),
            Mutant(
                Twin(
                    "mistral",
                    mutate=in_turn(
                        with_child("first", lambda block: RMS(block.input_layernorm.weight)),
                        with_child("second", lambda block: RMS(block.input_layernorm.weight)),
                        with_forward(normed_between),
                    ),
                ),
                has_both_norms,
                "yes",
                "norms under other names",
            ),
        ),
    ),
    Pair(
        "post-norms",
        yes=Twin("olmo2"),
        no=Twin("olmo2", mutate=replaced(same, *POST)),
        mutants=(
            Mutant(
                Twin("olmo2", mutate=with_forward(normed_before)),
                has_post_norms_alone,
                "no",
                "norms called post-norms stand in front",
            ),
            Mutant(
                Twin("gemma3_text", mutate=replaced(named_like(same), *PRE)),
                has_post_norms_alone,
                "yes",
                "the norms in front change nothing",
            ),
        ),
    ),
)

# what a block returns


def returns_a_tuple(module: Any) -> bool:
    return "tuple" in str(inspect.signature(type(blocks(module)[0]).forward).return_annotation)


def tupled(module: Any) -> None:
    """Blocks give their stream in a tuple, and take it so."""

    def bare(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (args[0][0] if isinstance(args[0], tuple) else args[0], *args[1:])

    for block in blocks(module):
        block.register_forward_pre_hook(bare)
        block.register_forward_hook(lambda _, __, out: (out,))
    module.model.norm.register_forward_pre_hook(bare)


def beside(self: Any, hidden_states: Stream, **kwargs: Any) -> Stream:
    attention = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)[0]
    return hidden_states + attention + self.mlp(self.post_attention_layernorm(hidden_states))


def one_after_the_other(module: Any) -> None:
    for block in blocks(module):
        block.use_parallel_residual = False


def in_a_row(self: Any, hidden_states: Stream, **kwargs: Any) -> Any:
    """Falcon-H1's block with its attention behind the mixer's add."""
    mixed = self.mamba(hidden_states=self.input_layernorm(hidden_states), cache=kwargs.get("cache"))
    hidden_states = hidden_states + mixed * self.ssm_out_multiplier
    kwargs.pop("mamba_attention_mask", None)
    hidden_states = hidden_states + self.self_attn(self.input_layernorm(hidden_states), **kwargs)[0]
    return (hidden_states + self.feed_forward(self.pre_ff_layernorm(hidden_states)),)


def with_a_mixer_beside(self: Any, hidden_states: Stream, **kwargs: Any) -> Stream:
    normed = self.input_layernorm(hidden_states)
    hidden_states = hidden_states + self.self_attn(hidden_states=normed, **kwargs)[0] + self.helper(normed)
    return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


JOINS = (
    Pair(
        "tuple-blocks",
        yes=Twin("llama", mutate=tupled),
        no=Twin("llama"),
        mutants=(Mutant(Twin("llama", mutate=tupled), returns_a_tuple, "yes", "the annotation says a tensor"),),
    ),
    Pair(
        "parallel-blocks",
        yes=Twin("gpt_neox"),
        no=Twin("gpt_neox", config={"use_parallel_residual": False}),
        mutants=(
            Mutant(
                Twin("gpt_neox", mutate=one_after_the_other),
                lambda module: module.config.use_parallel_residual,
                "no",
                "the block's own flag differs from the config's",
            ),
            Mutant(
                Twin("llama", mutate=with_forward(beside)),
                lambda module: getattr(module.config, "use_parallel_residual", False),
                "yes",
                "no config entry names it",
            ),
        ),
    ),
    Pair(
        "parallel-mixers",
        yes=Twin("falcon_h1"),
        no=Twin("falcon_h1", mutate=with_forward(in_a_row)),
        mutants=(
            Mutant(
                Twin("falcon_h1", mutate=with_forward(in_a_row)),
                lambda module: hasattr(blocks(module)[0], "mamba") and hasattr(blocks(module)[0], "self_attn"),
                "no",
                "the attention reads behind the mixer's add",
            ),
            Mutant(
                Twin(
                    "mistral",
                    mutate=in_turn(
                        with_child("helper", lambda block: RunningMean(block.hidden_size)),
                        with_forward(with_a_mixer_beside),
                    ),
                ),
                lambda module: hasattr(blocks(module)[0], "mamba"),
                "yes",
                "a mixer under another name",
            ),
        ),
    ),
)

PAIRS = (*NORMS, *JOINS)
