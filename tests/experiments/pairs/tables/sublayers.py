"""Pairs for how many sublayers a block has, of which kinds, and how many streams run through it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import blocks, named_like, with_forward
from tests.experiments.pairs.parts import RunningMean

Stream = torch.Tensor


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

PAIRS = (*COUNTS, *STREAMS)
