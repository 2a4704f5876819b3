"""Changes of built models that the tables on attention share: what stands behind a projection, and how an attention is
called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.experiments.pairs.mutations import each_block

Change = Callable[[torch.Tensor], torch.Tensor]


class Then(nn.Module):
    """A linear layer, and a function of what it gives."""

    def __init__(self, linear: nn.Module, change: Change) -> None:
        super().__init__()
        self.linear = linear
        self.change = change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.change(self.linear(x))


class OwnArithmetic(nn.Module):
    """An attention that turns nothing, by products and a softmax of its own."""

    def forward(self: Any, hidden_states: torch.Tensor, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        size = (*hidden_states.shape[:2], -1, self.head_dim)
        q = self.q_proj(hidden_states).view(size).transpose(1, 2)
        k = self.k_proj(hidden_states).view(size).transpose(1, 2)
        v = self.v_proj(hidden_states).view(size).transpose(1, 2)
        q, k = (self.turned(x, *kwargs["position_embeddings"]) for x in (q, k))
        k, v = self.remembered(k, v, kwargs.get("cache"))
        k, v = (x.repeat_interleave(self.num_key_value_groups, 1) for x in (k, v))
        scores = torch.matmul(q, k.transpose(-1, -2)) * self.scaling
        weights = nn.functional.softmax(scores + kwargs["attention_mask"], dim=-1)
        weights = nn.functional.dropout(weights, p=0.0, training=False)
        mixed = torch.matmul(weights, v).transpose(1, 2).reshape(*hidden_states.shape[:2], -1)
        return self.o_proj(mixed), weights

    def turned(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Queries or keys ``[batch, heads, seq, head_dim]``, from the angles' cosines and sines, each twice."""
        return x

    def remembered(self: Any, k: torch.Tensor, v: torch.Tensor, cache: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values ``[batch, heads, seq, head_dim]``, with those of the cache before them."""
        return (k, v) if cache is None else cache.update(k, v, self.layer_idx)


class Neighbours(OwnArithmetic):
    """The same with a rotary that turns neighbouring dimensions together."""

    def turned(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        cos, sin = (part[:, None, :, : part.shape[-1] // 2] for part in (cos, sin))
        left, right = x[..., 0::2], x[..., 1::2]
        return torch.stack([left * cos - right * sin, right * cos + left * sin], -1).flatten(-2)


def of_class(attention: type[nn.Module]) -> Callable[[Any], None]:
    """A mutation that gives every block's attention another forward under the name of its own class."""

    def change(block: Any) -> None:
        before = type(block.self_attn)
        block.self_attn.__class__ = type(before.__name__, (attention, before), {})

    return each_block(change)


def setting(name: str, value: Any) -> Callable[[Any], None]:
    """A mutation that sets an attribute of every block's attention."""
    return each_block(lambda block: setattr(block.self_attn, name, value))


def then(change: Change) -> Callable[[Any], nn.Module]:
    """What a projection is replaced by: the same, and a change behind it that is not the projection's own."""
    return lambda before: Then(before, change)


def calling(change: Callable[[Any, dict[str, Any]], dict[str, Any]], path: str = "self_attn") -> Callable[[Any], None]:
    """A mutation that calls the module at a path of every block with other keyword arguments."""

    def hook(
        module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, {**kwargs, **change(module, kwargs)}

    return each_block(lambda block: block.get_submodule(path).register_forward_pre_hook(hook, with_kwargs=True))


def taking(change: Change, path: str) -> Callable[[Any], None]:
    """A mutation that changes what the module at a path of every block takes."""

    def hook(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return change(args[0]), *args[1:]

    return each_block(lambda block: block.get_submodule(path).register_forward_pre_hook(hook))


def is_of(model_type: str) -> Callable[[Any], bool]:
    """A check of the config's model type."""
    return lambda module: module.config.model_type == model_type


def names(entry: str) -> Callable[[Any], bool]:
    """A check whether an entry of the config holds something."""
    return lambda module: bool(getattr(module.config, entry, None))


def has(name: str) -> Callable[[Any], bool]:
    """A check for a module or parameter of that name anywhere in the model."""

    def check(module: Any) -> bool:
        paths = [path for path, _ in (*module.named_parameters(), *module.named_modules())]
        return any(name in path.split(".") for path in paths)

    return check
