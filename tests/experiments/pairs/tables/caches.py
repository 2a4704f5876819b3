"""Pairs for where a next token finds what it needs, and for blocks that a call shortens."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from tests.experiments.pairs.attentions import OwnArithmetic, calling, is_of, names, of_class
from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import each_block, in_turn


class Halved(OwnArithmetic):
    """An attention whose cache holds half of its keys' numbers, which are doubled again."""

    def remembered(self: Any, k: torch.Tensor, v: torch.Tensor, cache: Any) -> tuple[torch.Tensor, torch.Tensor]:
        if cache is None:
            return k, v
        k, v = cache.update(k / 2, v, self.layer_idx)
        return k * 2, v


def drop(module: Any) -> None:
    """The model returns no cache."""

    def without(_: nn.Module, __: Any, out: Any) -> Any:
        out.cache = None
        return out

    module.model.register_forward_hook(without)


def keep(block: Any) -> None:
    """The attention keeps what it returned."""
    block.self_attn.register_forward_hook(lambda attention, _, out: setattr(attention, "kept", out[0]))


def note(block: Any) -> None:
    """The attention holds a number that no call changes."""
    block.attn.scale = torch.tensor(0.5)


def whole(module: Any) -> None:
    """The stack is not told how many logits are wanted."""

    def untold(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        return args, {name: value for name, value in kwargs.items() if name != "logits_to_keep"}

    module.model.register_forward_pre_hook(untold, with_kwargs=True)


def takes_no_cache(module: Any) -> bool:
    return not {"cache", "past_key_values"} & set(inspect.signature(module.forward).parameters)


def holds_tensors(module: Any) -> bool:
    """A check for tensors among the attributes of modules."""
    return any(isinstance(item, torch.Tensor) for part in module.modules() for item in vars(part).values())


PAIRS = (
    Pair(
        "cached-otherwise",
        yes=Twin("deepseek_v3"),
        no=Twin("llama"),
        mutants=(
            Mutant(
                Twin("arcee", mutate=of_class(Halved)), names("kv_lora_rank"), "yes", "keys that are stored by half"
            ),
            Mutant(
                Twin("deepseek_v3", mutate=calling(lambda *_: {"cache": None})),
                names("kv_lora_rank"),
                "no",
                "latents that are never stored",
            ),
        ),
    ),
    Pair(
        "no-cache",
        yes=Twin("openai-gpt"),
        no=Twin("gpt2"),
        mutants=(Mutant(Twin("llama", mutate=drop), takes_no_cache, "yes", "a cache that is not returned"),),
    ),
    Pair(
        "cache-in-modules",
        yes=Twin("recurrent_gemma"),
        no=Twin("llama"),
        mutants=(
            Mutant(
                Twin("llama", mutate=in_turn(drop, each_block(keep))),
                is_of("recurrent_gemma"),
                "yes",
                "a Llama that keeps what it computed",
            ),
            Mutant(Twin("openai-gpt", mutate=each_block(note)), holds_tensors, "no", "a number that no call changes"),
        ),
    ),
    Pair(
        "shortened-blocks",
        yes=Twin("gemma4_text"),
        no=Twin("gemma4_text", config={"num_kv_shared_layers": 0}),
        mutants=(
            Mutant(
                Twin("gemma4_text", mutate=whole),
                names("num_kv_shared_layers"),
                "no",
                "a stack that runs every position",
            ),
        ),
    ),
)
