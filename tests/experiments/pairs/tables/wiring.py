"""Pairs for how a block is wired."""

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

# how many sublayers there are, and of which kinds


def alone(self: Any, hidden_states: Stream, **kwargs: Any) -> Stream:
    return hidden_states + self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)[0]


def layers_called(self: Any, hidden_states: Stream, **kwargs: Any) -> Stream:
    """The block calls the MLP's layers and not the MLP."""
    hidden_states = hidden_states + self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)[0]
    normed, mlp = self.post_attention_layernorm(hidden_states), self.mlp
    return hidden_states + mlp.down_proj(mlp.act_fn(mlp.gate_proj(normed)) * mlp.up_proj(normed))


def called_otherwise(module: Any) -> None:
    """The MLP under another name."""

    def forward(self: Any, hidden_states: Stream, **kwargs: Any) -> Stream:
        hidden_states = hidden_states + self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)[0]
        return hidden_states + self.channels(self.post_attention_layernorm(hidden_states))

    for block in blocks(module):
        block.channels = block.mlp
        del block.mlp
    with_forward(forward)(module)


class TwoLayers(nn.Module):
    """OPT's two layers as a module."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.fc1, self.act, self.fc2 = block.fc1, block.activation_fn, block.fc2

    def forward(self, x: Stream) -> Stream:
        return self.fc2(self.act(self.fc1(x)))


def in_a_module(module: Any) -> None:
    def forward(self: Any, hidden_states: Stream, **kwargs: Any) -> Stream:
        hidden_states = hidden_states + self.self_attn(self.self_attn_layer_norm(hidden_states), **kwargs)[0]
        return hidden_states + self.channels(self.final_layer_norm(hidden_states))

    for block in blocks(module):
        block.channels = TwoLayers(block)
        del block.fc1, block.fc2, block.activation_fn
    with_forward(forward)(module)


def without_mlp(module: Any) -> bool:
    return not hasattr(blocks(module)[0], "mlp")


class OtherAttention(RunningMean):
    """Takes what an attention takes, and weighs nothing."""

    def __init__(self, before: Any) -> None:
        super().__init__(before.o_proj.out_features)

    def forward(self, hidden_states: Stream, **kwargs: Any) -> tuple[Stream, None]:
        return super().forward(hidden_states), None


def second_without_attention(module: Any) -> None:
    block = blocks(module)[1]
    block.self_attn = named_like(OtherAttention)(block.self_attn)


FULL = ["full_attention"] * 4


def with_idle_convolutions(module: Any) -> None:
    blocks(module)[0].conv = RunningMean(module.config.hidden_size)


COUNTS = (
    Pair(
        "one-sublayer-blocks",
        yes=Twin("mistral", mutate=with_forward(alone)),
        no=Twin("mistral"),
        mutants=(
            Mutant(
                Twin("mistral", mutate=with_forward(alone)), without_mlp, "yes", "the MLP is there and never called"
            ),
            Mutant(Twin("mistral", mutate=called_otherwise), without_mlp, "no", "the MLP has another name"),
        ),
    ),
    Pair(
        "no-mlp",
        yes=Twin("opt"),
        no=Twin("opt", mutate=in_a_module),
        mutants=(
            Mutant(Twin("mistral", mutate=with_forward(layers_called)), without_mlp, "yes", "the MLP is never called"),
            Mutant(Twin("mistral", mutate=called_otherwise), without_mlp, "no", "the MLP has another name"),
        ),
    ),
    Pair(
        "hybrid",
        yes=Twin("lfm2"),
        no=Twin("lfm2", config={"layer_types": FULL}),
        mutants=(
            Mutant(
                Twin("mistral", mutate=second_without_attention),
                lambda module: len({type(getattr(block, "self_attn", None)).__name__ for block in blocks(module)}) > 1,
                "yes",
                "a MistralAttention attends to nothing",
            ),
            Mutant(
                Twin("lfm2", config={"layer_types": FULL}, mutate=with_idle_convolutions),
                lambda module: len({hasattr(block, "conv") for block in blocks(module)}) > 1,
                "no",
                "a convolution is there and never called",
            ),
        ),
    ),
)

# streams


def lanes(module: Any) -> None:
    """Two streams: each block reads their mean, and adds to both with weights of its own."""

    def forward(self: Any, hidden_states: Stream, **kwargs: Any) -> Stream:
        read = hidden_states.mean(2)
        hidden_states = hidden_states + self.self_attn(self.input_layernorm(read), **kwargs)[0].unsqueeze(2) * self.w
        read = hidden_states.mean(2)
        return hidden_states + self.mlp(self.post_attention_layernorm(read)).unsqueeze(2) * self.w

    for block in blocks(module):
        block.w = nn.Parameter(torch.tensor([[0.7], [1.3]]))
    with_forward(forward)(module)
    blocks(module)[0].register_forward_pre_hook(lambda _, args: (torch.stack([args[0], args[0] / 2], 2), *args[1:]))
    module.model.norm.register_forward_pre_hook(lambda _, args: (args[0].mean(2),))


def names_lanes(module: Any) -> bool:
    return getattr(module.config, "hc_mult", 1) > 1


STREAMS = (
    Pair(
        "hyper-connections",
        yes=Twin("deepseek_v4"),
        no=Twin("deepseek_v4", config={"hc_mult": 1}),
        mutants=(Mutant(Twin("mistral", mutate=lanes), names_lanes, "yes", "no config entry names the streams"),),
    ),
)

PAIRS = (*NORMS, *JOINS, *COUNTS, *STREAMS)
