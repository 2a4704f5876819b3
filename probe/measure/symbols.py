"""Symbols: a forward pass that carries, on each tensor of a block, the expression that made it.

Hooks mark every submodule's output as a leaf and remember the expression of its input; a ``TorchFunctionMode`` carries
expressions through sums, products and operations that only change the shape. What comes out for a block is its output
as sums and products over its submodules' outputs and its own input, ``x``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .norms import is_norm

SHAPE_ONLY = frozenset(
    (
        "view reshape contiguous to dropout clone squeeze unsqueeze type_as float view_as flatten unflatten "
        "__getitem__ expand"
    ).split()
)
WEIGHS = frozenset({"softmax", "scaled_dot_product_attention"})
CHOOSES = frozenset({"topk", "max", "argmax"})


@dataclass(frozen=True, eq=False)
class Stream:
    """The block's input."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """The output of a submodule: its path in the block, the expression of what it was called with, the tensor, and the
    modules it ran inside of, outermost first; ``order`` grows with the forward.
    """

    path: str
    input: Expression | None
    tensor: torch.Tensor
    inside: tuple[str, ...] = ()
    order: int = 0
    norm: bool = False


@dataclass(frozen=True, eq=False)
class Opaque:
    """A tensor of unknown origin, or a buffer or parameter of the block under its name."""

    name: str
    kind: str


@dataclass(frozen=True, eq=False)
class Sum:
    left: Expression
    right: Expression
    tensor: torch.Tensor
    order: int = 0


@dataclass(frozen=True, eq=False)
class Product:
    of: Expression
    factor: Expression
    tensor: torch.Tensor


Expression = Stream | Leaf | Opaque | Sum | Product


@dataclass
class BlockTrace:
    """What the forward of one block showed."""

    output: Expression | None = None
    entered: dict[str, Expression | None] = field(default_factory=dict)
    """Submodule path -> the expression of what it was called with."""
    calls: dict[str, tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]] = field(default_factory=dict)
    """Submodule path -> the module and what it was called with."""
    functions: dict[str, set[str]] = field(default_factory=dict)
    """Submodule path -> functions called inside it, of those that tell what kind of module it is."""
    returns: str = "tensor"
    """How the block returns its stream: `tensor`, or `tuple` with it first."""


class Symbols(TorchFunctionMode):
    """Runs one forward of ``blocks``' model and keeps a :class:`BlockTrace` for each block.

    Used as a context around the forward; ``traces`` then has one entry a block.
    """

    def __init__(self, blocks: list[torch.nn.Module]) -> None:
        super().__init__()
        self.traces = [BlockTrace() for _ in blocks]
        self._blocks = blocks
        self._of: dict[int, Expression] = {}
        self._alive: list[torch.Tensor] = []
        self._inside: list[str] = []
        self._current: BlockTrace | None = None
        self._named: dict[int, tuple[str, str]] = {}
        self._handles: list[Any] = []
        self._norms: dict[torch.nn.Module, bool] = {}

    def __enter__(self) -> Symbols:
        for block, trace in zip(self._blocks, self.traces, strict=True):
            self._watch(block, trace)
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        for handle in self._handles:
            handle.remove()

    def _watch(self, block: torch.nn.Module, trace: BlockTrace) -> None:
        def enter(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._of.clear()
            self._alive.clear()
            self._current = trace
            self._named = {id(p): (n, "parameter") for n, p in block.named_parameters()}
            self._named |= {id(b): (n, "buffer") for n, b in block.named_buffers()}
            self._name(first_tensor([*args, *kwargs.values()]), Stream())

        def leave(_: torch.nn.Module, __: Any, output: Any) -> None:
            tensor = first_tensor(output)
            trace.output = self._of.get(id(tensor))
            trace.returns = "tensor" if isinstance(output, torch.Tensor) else "tuple"
            self._current = None

        self._handles.append(block.register_forward_pre_hook(enter, with_kwargs=True))
        self._handles.append(block.register_forward_hook(leave))
        for path, module in block.named_modules():
            if path:
                self._watch_inner(path, module, trace)

    def _watch_inner(self, path: str, module: torch.nn.Module, trace: BlockTrace) -> None:
        def enter(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self._current is trace:
                self._inside.append(path)
                tensor = first_tensor([*args, *kwargs.values()])
                trace.entered[path] = self._of.get(id(tensor))
                trace.calls[path] = (module, args, kwargs)

        def leave(_: torch.nn.Module, __: Any, output: Any) -> None:
            if self._current is trace:
                self._inside.pop()
                tensor = first_tensor(output)
                if tensor is not None and not self._adds_to_the_stream(tensor, trace.entered[path]):
                    leaf = Leaf(
                        path,
                        trace.entered[path],
                        tensor.detach().clone(),
                        tuple(self._inside),
                        len(self._alive),
                        self._is_norm(module, tensor.shape[-1]),
                    )
                    self._name(tensor, leaf)

        self._handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
        self._handles.append(module.register_forward_hook(leave))

    def _is_norm(self, module: torch.nn.Module, width: int) -> bool:
        if module not in self._norms:
            current, self._current = self._current, None
            self._norms[module] = is_norm(module, width)
            self._current = current
        return self._norms[module]

    def _adds_to_the_stream(self, output: torch.Tensor, entered: Expression | None) -> bool:
        """Whether a module added to the stream inside: its output is then the sum, and no term of its own."""
        made = _unscaled(self._of.get(id(output)))
        return isinstance(made, Sum) and contains_stream(made) and made is not _unscaled(entered)

    def _name(self, tensor: torch.Tensor | None, expression: Expression) -> None:
        if tensor is not None:
            self._of[id(tensor)] = expression
            self._alive.append(tensor)  # an id is unique among living objects only

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self._current is None:
            return out
        name = getattr(func, "__name__", "")
        told = name if name in CHOOSES else "weighs" if name in WEIGHS else None
        if told == "weighs" and isinstance(out, torch.Tensor) and out.ndim == 4:
            told = "attends"
        if told is not None:
            for path in self._inside:
                self._current.functions.setdefault(path, set()).add(told)
        if isinstance(out, torch.Tensor) and args:
            self._carry(name, out, args)
        return out

    def _carry(self, name: str, out: torch.Tensor, args: tuple[Any, ...]) -> None:
        kind = name.strip("_").removeprefix("r").removeprefix("i")
        if name in SHAPE_ONLY:
            known = self._of.get(id(args[0]))
            if known is not None:
                self._name(out, known)
        elif kind in ("add", "mul") and len(args) >= 2:
            left, right = self._operand(args[0]), self._operand(args[1])
            if isinstance(left, Opaque) and isinstance(right, Opaque):
                return
            kept = out.detach().clone()
            if kind == "add":
                self._name(out, Sum(left, right, kept, len(self._alive)))
            elif isinstance(left, Opaque):
                self._name(out, Product(right, left, kept))
            else:
                self._name(out, Product(left, right, kept))

    def _operand(self, value: Any) -> Expression:
        if not isinstance(value, torch.Tensor):
            return Opaque(f"{value:g}" if isinstance(value, (int, float)) else "?", "constant")
        known = self._of.get(id(value))
        if known is not None:
            return known
        name, kind = self._named.get(id(value), ("?", "tensor"))
        return Opaque(name, kind)


def first_tensor(value: Any) -> torch.Tensor | None:
    """The first tensor of a forward's arguments or return value."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return next((found for item in value[:1] if (found := first_tensor(item)) is not None), None)
    return None


def _unscaled(expression: Expression | None) -> Expression | None:
    while isinstance(expression, Product):
        expression = expression.of
    return expression


def contains_stream(expression: Expression | None) -> bool:
    """Whether ``expression`` is a point of the residual stream: the block's input, or a sum that has it as a term."""
    match expression:
        case Stream():
            return True
        case Sum():
            return contains_stream(expression.left) or contains_stream(expression.right)
        case Product():
            return contains_stream(expression.of)
        case _:
            return False


def carries_stream(expression: Expression | None) -> bool:
    """Whether ``expression`` is the stream, a sum with it, or a norm of either."""
    match expression:
        case Leaf():
            return expression.norm and carries_stream(expression.input)
        case Sum():
            return carries_stream(expression.left) or carries_stream(expression.right)
        case Product():
            return carries_stream(expression.of)
        case _:
            return isinstance(expression, Stream)


def terms(expression: Expression) -> Iterator[Expression]:
    """The terms of nested sums, in the order they were added."""
    if isinstance(expression, Sum):
        yield from terms(expression.left)
        yield from terms(expression.right)
    else:
        yield expression
