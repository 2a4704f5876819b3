"""A tap: what the attentions of a stack pass through while the model runs, and hooks that change single rows.

A tap listens at transformers' shared attention interface, which hands over queries, keys, values and the heads' outputs
of every attention that uses it, and at the softmax and the top-k, which any attention or router calls. It is used
around a plain forward, outside any nnsight trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from nnsight.intervention.envoy import Envoy
from torch.overrides import TorchFunctionMode
from transformers.modeling_utils import AttentionInterface

Change = Callable[[torch.Tensor], torch.Tensor]
"""Gives the tensor a module goes on with."""

Softmax = Callable[[torch.Tensor, torch.Tensor], Any]


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
    chosen: list[torch.Tensor] = field(default_factory=list)
    """Indices that a top-k chose inside the attention."""


class Tap(TorchFunctionMode):
    """Listens to the attentions of ``envoys`` (one a block; None where a block has none).

    Args:
        envoys: the attention of each block.
        softmax: what to keep of a softmax over positions, from its input and output ``[batch, heads, query, key]``.
        heads: applied to what the interface returns, ``[batch, seq, heads, head_dim]``, before the model takes it.
    """

    def __init__(
        self, envoys: Iterable[Envoy | None], *, softmax: Softmax | None = None, heads: Change | None = None
    ) -> None:
        super().__init__()
        modules = [None if envoy is None else envoy._module for envoy in envoys]
        self.blocks = [Tapped() for _ in modules]
        self._index = {id(module): index for index, module in enumerate(modules) if module is not None}
        self._modules = modules
        self._softmax = softmax
        self._heads = heads
        self._inside: int | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Tap:
        original = AttentionInterface.get_interface

        def get_interface(registry: AttentionInterface, name: str, default: Callable[..., Any]) -> Callable[..., Any]:
            return self._listening(original(registry, name, default))

        self._stack.enter_context(mock.patch.object(AttentionInterface, "get_interface", get_interface))
        for index, module in enumerate(self._modules):
            if module is not None:
                self._stack.enter_context(removed(module.register_forward_pre_hook(self._enter(index))))
                self._stack.enter_context(removed(module.register_forward_hook(self._leave())))
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self._stack.close()

    def _enter(self, index: int) -> Callable[..., None]:
        def enter(*_: Any) -> None:
            self._inside = index

        return enter

    def _leave(self) -> Callable[..., None]:
        def leave(*_: Any) -> None:
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
            output, pattern = interface(module, query, key, value, *args, **kwargs)
            index = self._index.get(id(module))
            if index is None:
                return output, pattern
            if self._heads is not None:
                output = self._heads(output)
            block = self.blocks[index]
            block.interface += 1
            block.queries, block.keys, block.values, block.heads = (
                query.clone(),
                key.clone(),
                value.clone(),
                output.clone(),
            )
            return output, pattern

        return listen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self._inside is None:
            return out
        name = getattr(func, "__name__", "")
        block = self.blocks[self._inside]
        if name == "softmax" and self._softmax is not None and isinstance(out, torch.Tensor) and out.ndim == 4:
            block.softmax = self._softmax(args[0].detach(), out.detach())
        if name == "topk":
            block.chosen.append(out[1].detach().clone())
        return out


@contextmanager
def removed(handle: Any) -> Any:
    """Removes a hook when the context ends."""
    try:
        yield handle
    finally:
        handle.remove()


@contextmanager
def hooks(
    entering: Iterable[tuple[torch.nn.Module, Change]] = (), leaving: Iterable[tuple[torch.nn.Module, Change]] = ()
) -> Any:
    """Changes what modules are called with (their first tensor) and what they return, while the context lasts."""
    with ExitStack() as stack:
        for module, change in entering:
            stack.enter_context(removed(module.register_forward_pre_hook(_entering(change), with_kwargs=True)))
        for module, change in leaving:
            stack.enter_context(removed(module.register_forward_hook(_leaving(change))))
        yield


def _entering(change: Change) -> Callable[..., Any]:
    def hook(
        _: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if args:
            return (change(args[0]), *args[1:]), kwargs
        name = next(name for name, value in kwargs.items() if isinstance(value, torch.Tensor))
        return args, {**kwargs, name: change(kwargs[name])}

    return hook


def _leaving(change: Change) -> Callable[..., Any]:
    def hook(_: torch.nn.Module, __: Any, output: Any) -> Any:
        if isinstance(output, torch.Tensor):
            return change(output)
        return (change(output[0]), *output[1:])

    return hook


@dataclass(frozen=True)
class Rows:
    """The rows of a batch, in tensors that have a row axis and in those where tokens of all rows are one axis."""

    total: int

    def part(self, tensor: torch.Tensor, row: int) -> torch.Tensor:
        """The part of a tensor that belongs to a row."""
        size = tensor.shape[0] // self.total
        return tensor[row * size : (row + 1) * size]

    def align(self, tensor: torch.Tensor) -> torch.Tensor:
        """Every row set to row 0, so that what differs between rows afterwards was changed after this point."""
        return self.part(tensor, 0).repeat(self.total, *[1] * (tensor.ndim - 1))

    def change(self, row: int, how: Change) -> Change:
        """Changes one row, given as ``[seq, width]`` or whatever follows the row axis, and leaves the others."""

        def change(tensor: torch.Tensor) -> torch.Tensor:
            changed = tensor.clone()
            target = self.part(changed, row)
            only = target.shape[0] == 1 and tensor.ndim > 2
            target.copy_(how(target[0])[None] if only else how(target))
            return changed

        return change

    def keep(self, store: dict[Any, torch.Tensor], name: Any) -> Change:
        """Changes nothing and keeps a float32 copy of what passes, ``[rows, seq, width]`` for a stream."""

        def change(tensor: torch.Tensor) -> torch.Tensor:
            store[name] = tensor.detach().float().clone().reshape(self.total, -1, tensor.shape[-1])
            return tensor

        return change


__all__ = ["Change", "Rows", "Softmax", "Tap", "Tapped", "hooks", "removed"]
