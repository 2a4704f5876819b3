"""A tap: what the attentions of a stack pass through while the model runs.

A tap listens at transformers' shared attention interface, which hands over queries, keys, values and the heads' outputs
of every attention that uses it, at the products of an attention that does its arithmetic itself, and at the softmax and
the top-k, which any attention or router calls. It is used around a plain forward, outside any nnsight trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import torch
from nnsight.intervention.envoy import Envoy
from torch.overrides import TorchFunctionMode
from transformers.modeling_utils import AttentionInterface

from .rows import Change, Rows, hooks, removed, unheard

Softmax = Callable[[torch.Tensor, torch.Tensor], Any]

PRODUCTS = frozenset({"matmul", "__matmul__", "bmm", "baddbmm"})
FUSED = "scaled_dot_product_attention"
MASKED = -9e3
"""Scores below this are masked, also where a class masks by adding a large number instead of the largest."""

LISTENED = PRODUCTS | {FUSED, "softmax", "topk"}
"""The functions of torch that a tap listens to."""


@dataclass
class Tapped:
    """What one block's attention passed in a forward; a list is empty and a tensor None where nothing passed."""

    interface: int = 0
    """How often the shared attention interface was entered."""
    queries: torch.Tensor | None = None
    keys: torch.Tensor | None = None
    values: torch.Tensor | None = None
    heads: torch.Tensor | None = None
    softmax: Any = None
    """What the tap's ``softmax`` made of the softmax's input and output."""
    softmaxes: int = 0
    """How often a softmax was taken, in the shared interface or outside it."""
    chosen: list[torch.Tensor] = field(default_factory=list)
    """Indices that a top-k chose inside the attention."""
    candidates: list[int] = field(default_factory=list)
    """Of how many each top-k chose."""

    def only(self, rows: Rows) -> Tapped:
        """The same with some of the batch's rows of queries, keys, values and heads."""
        queries, keys, values, heads = (
            None if tensor is None else rows.only(tensor)
            for tensor in (self.queries, self.keys, self.values, self.heads)
        )
        return replace(self, queries=queries, keys=keys, values=values, heads=heads)


class Tap(TorchFunctionMode):
    """Listens to the attentions of ``envoys`` (one a block; None where a block has none) while they run.

    An attention that does its arithmetic itself is listened to at its products: the one before the softmax has queries
    and keys as its factors, the one that takes the softmax's rows has the values.

    Args:
        envoys: the attention of each block.
        softmax: what to keep of a softmax over positions, from its input and output ``[batch, heads, query, key]``.
        heads: applied to the heads' outputs, ``[batch, seq, heads, head_dim]``, before the model takes them.
        ranked: applied to the numbers by which a top-k chooses.
    """

    def __init__(
        self,
        envoys: Iterable[Envoy | None],
        *,
        softmax: Softmax | None = None,
        heads: Change | None = None,
        ranked: Change | None = None,
    ) -> None:
        super().__init__()
        self._modules = [None if envoy is None else envoy._module for envoy in envoys]
        self.blocks = [Tapped() for _ in self._modules]
        self._softmax = softmax
        self._heads = None if heads is None else unheard(heads)
        self._ranked = ranked
        self._inside: int | None = None
        self._rows = 1
        self._in_interface = False
        self._product: Product | None = None
        self._weighing: tuple[Product, torch.Tensor] | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Tap:
        original = AttentionInterface.get_interface

        def get_interface(registry: AttentionInterface, name: str, default: Callable[..., Any]) -> Callable[..., Any]:
            return self._listening(original(registry, name, default))

        self._stack.enter_context(mock.patch.object(AttentionInterface, "get_interface", get_interface))
        for index, module in enumerate(self._modules):
            if module is not None:
                entering = module.register_forward_pre_hook(self._enter(index), with_kwargs=True)
                self._stack.enter_context(removed(entering))
                self._stack.enter_context(removed(module.register_forward_hook(self._leave(), always_call=True)))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.close()

    def _enter(self, index: int) -> Callable[..., None]:
        def enter(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self._inside is None:
                super(Tap, self).__enter__()
            self._inside = index
            self._product = self._weighing = None
            given = [item for item in (*args, *kwargs.values()) if isinstance(item, torch.Tensor)]
            self._rows = int(given[0].shape[0]) if given else 1

        return enter

    def _leave(self) -> Callable[..., None]:
        def leave(*_: Any) -> None:
            if self._inside is not None:
                super(Tap, self).__exit__(None, None, None)
            self._inside = None

        return leave

    def _listening(self, interface: Callable[..., Any]) -> Callable[..., Any]:
        def listen(
            module: torch.nn.Module,
            query: torch.Tensor,
            key: torch.Tensor,
            value: torch.Tensor,
            *args: Any,
            **kwargs: Any,
        ) -> Any:
            self._in_interface = True
            try:
                output, pattern = interface(module, query, key, value, *args, **kwargs)
            finally:
                self._in_interface = False
            if self._inside is None:
                return output, pattern
            if self._heads is not None:
                output = self._heads(output)
            self.blocks[self._inside].interface += 1
            self._keep(query, key, value, output)
            return output, pattern

        return listen

    @unheard
    def _keep(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, heads: torch.Tensor) -> None:
        block = self.blocks[self._inside or 0]
        block.queries, block.keys, block.values, block.heads = (
            tensor.detach().clone() for tensor in (query, key, value, heads)
        )

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name not in LISTENED or self._inside is None:
            return out
        block = self.blocks[self._inside]
        if name == "softmax" and isinstance(out, torch.Tensor) and out.ndim >= 3:
            block.softmaxes += 1
            scores, pattern = by_heads(args[0], self._rows), by_heads(out, self._rows)
            if self._softmax is not None and scores is not None and pattern is not None:
                block.softmax = self._softmax(scores.detach(), pattern.detach())
        if name == "topk":
            if self._ranked is not None:
                out = _by_rank(func, self._ranked(args[0]), args, kwargs or {})
            block.chosen.append(out[1].detach().clone())
            block.candidates.append(int(args[0].shape[-1]))
        return out if self._in_interface else self._own(name, [*args, *(kwargs or {}).values()], out)

    def _own(self, name: str, given: list[Any], out: Any) -> Any:
        """Follow an attention's own arithmetic, and give what the model goes on with."""
        if name == "softmax" and self._product is not None and self._product.gives(out):
            self._weighing = self._product, out
        if name not in PRODUCTS and name != FUSED:
            return out
        tensors = [item for item in given if isinstance(item, torch.Tensor)]
        if name == FUSED and len(tensors) >= 3:
            return self._mixed(tensors[0], tensors[1], tensors[2], out)
        left, right = tensors[-2:] if name == "baddbmm" else tensors[:2]
        if self._weighing is None or not _weighs(self._weighing[1], left):
            self._product = Product(left, right, out)
            return out
        product, self._weighing = self._weighing[0], None
        return self._mixed(product.left, product.right.transpose(-1, -2), right, out)

    def _mixed(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        parts = [by_heads(tensor, self._rows) for tensor in (query, key, value, out)]
        if any(part is None for part in parts):
            return out
        queries, keys, values, heads = (part for part in parts if part is not None)
        heads = heads.transpose(1, 2)
        if self._heads is not None:
            heads = self._heads(heads)
            out = heads.transpose(1, 2).reshape(out.shape)
        self._keep(queries, keys, values, heads)
        return out


@dataclass(frozen=True)
class Product:
    """A matrix product: its factors and what it gave."""

    left: torch.Tensor
    right: torch.Tensor
    out: torch.Tensor

    def gives(self, pattern: torch.Tensor) -> bool:
        """Whether a softmax's rows may be of what the product gave."""
        return self.out.numel() == pattern.numel() and self.out.shape[-1] == pattern.shape[-1]


def _weighs(pattern: torch.Tensor, left: torch.Tensor) -> bool:
    """Whether the first factor of a product holds a softmax's rows."""
    return left.ndim >= 3 and left.numel() == pattern.numel() and left.shape[-2:] == pattern.shape[-2:]


def _by_rank(topk: Any, ranked: torch.Tensor, args: Any, kwargs: Any) -> Any:
    """What a top-k gives that chooses by other numbers: their places, and the numbers that stand there."""
    out = topk(ranked, *args[1:], **kwargs)
    dim = args[2] if len(args) > 2 else kwargs.get("dim", -1)
    return type(out)((args[0].gather(dim, out[1]), out[1]))


def by_heads(tensor: torch.Tensor, rows: int) -> torch.Tensor | None:
    """A tensor of an attention as ``[batch, heads, …, …]``, also where batch and heads are one axis; None where it has
    other axes.
    """
    if tensor.ndim == 3 and tensor.shape[0] % rows == 0:
        return tensor.unflatten(0, (rows, -1))
    return tensor if tensor.ndim == 4 and tensor.shape[0] == rows else None


__all__ = ["Change", "Rows", "Softmax", "Tap", "Tapped", "hooks", "removed"]
