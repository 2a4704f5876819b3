"""Symbols: a forward pass that carries, on each tensor of a block, the expression that made it.

Hooks mark every submodule's outputs as leaves and remember what it was called with; a ``TorchFunctionMode`` carries
expressions through sums, products, products with a matrix, and operations that only change the shape or the axes. What
comes out for a block is its output as an expression (:mod:`probe.wiring.expressions`). A block that runs several times
in one forward is traced the first time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .expressions import (
    Element,
    Expression,
    Leaf,
    Made,
    Opaque,
    Product,
    Stream,
    Sum,
    carries_stream,
    contains_stream,
    depends,
    unscaled,
)
from .norms import is_norm
from .operands import SUMS, arithmetic, axes, first_tensor, is_factor, spread_axis, tensors

SHAPE_ONLY = frozenset(
    "view reshape contiguous to dropout clone squeeze unsqueeze type_as float view_as flatten unflatten".split()
)
SPREADS = frozenset({"expand", "expand_as", "repeat"})
PERMUTES = frozenset({"transpose", "permute", "swapaxes", "movedim"})
WEIGHS = frozenset({"softmax", "scaled_dot_product_attention"})
CHOOSES = frozenset({"topk", "argmax", "one_hot", "grouped_mm"})
ACTIVATES = frozenset(
    "silu gelu relu relu6 elu celu selu mish sigmoid logsigmoid tanh erf softplus hardswish hardtanh leaky_relu".split()
)
LOOKS_UP = frozenset({"embedding"})


@dataclass
class BlockTrace:
    """What the forward of one block showed."""

    output: Expression | None = None
    entered: dict[str, Expression | None] = field(default_factory=dict)
    """Submodule path -> the expression of what it was called with, of its tensors the first that the stream made."""
    calls: dict[str, tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]] = field(default_factory=dict)
    """Submodule path -> the module and what it was called with."""
    functions: dict[str, set[str]] = field(default_factory=dict)
    """Submodule path -> functions called inside it, of those that tell what kind of module it is."""
    returns: str = "tensor"
    """How the block returns its stream: `tensor`, or `tuple` with it first."""
    done: bool = False


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
        self._inputs: list[tuple[Expression, ...]] = []
        self._current: BlockTrace | None = None
        self._named: dict[int, Opaque] = {}
        self._handles: list[Any] = []
        self._norms: dict[torch.nn.Module, bool] = {}
        self._places: dict[int, list[str]] = {}
        """Where a largest value stands, by the tensor's id, and the modules that looked for it."""

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
            if trace.done:
                return
            self._of.clear()
            self._alive.clear()
            self._places.clear()
            self._current = trace
            self._named = {id(p): Opaque(n, "parameter") for n, p in block.named_parameters()}
            self._named |= {id(b): Opaque(n, "buffer") for n, b in block.named_buffers()}
            self._name(first_tensor([*args, *kwargs.values()]), Stream())

        def leave(_: torch.nn.Module, __: Any, output: Any) -> None:
            if self._current is trace:
                trace.output = self._of.get(id(first_tensor(output)))
                trace.returns = "tensor" if isinstance(output, torch.Tensor) else "tuple"
                trace.done = True
                self._current = None

        self._handles.append(block.register_forward_pre_hook(enter, with_kwargs=True))
        self._handles.append(block.register_forward_hook(leave))
        for path, module in block.named_modules():
            if path:
                self._watch_inner(path, module, trace)

    def _watch_inner(self, path: str, module: torch.nn.Module, trace: BlockTrace) -> None:
        def enter(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self._current is trace:
                given = [self._of.get(id(tensor)) for _, tensor in tensors([*args, *kwargs.values()])]
                known = tuple(each for each in given if each is not None)
                self._inside.append(path)
                self._inputs.append(known)
                trace.entered[path] = next((each for each in known if depends(each)), None)
                trace.calls[path] = (module, args, kwargs)

        def leave(_: torch.nn.Module, __: Any, output: Any) -> None:
            if self._current is trace:
                self._inside.pop()
                self._returned(path, module, self._inputs.pop(), list(tensors(output)))

        self._handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
        self._handles.append(module.register_forward_hook(leave))

    def _is_norm(self, module: torch.nn.Module, returned: torch.Tensor) -> bool:
        if module not in self._norms:
            current, self._current = self._current, None
            self._norms[module] = returned.ndim > 1 and is_norm(module, returned.shape[-1])
            self._current = current
        return self._norms[module]

    def _returned(
        self,
        path: str,
        module: torch.nn.Module,
        inputs: tuple[Expression, ...],
        outputs: list[tuple[Element, torch.Tensor]],
    ) -> None:
        """Name what a module returned as leaves, except what it was given, or holds as a parameter; a module that adds
        to the stream inside is looked into, and names nothing.
        """
        norm = bool(outputs) and self._is_norm(module, outputs[0][1])
        if not norm and any(self._adds_to_the_stream(tensor, inputs) for _, tensor in outputs):
            return
        for place, (element, tensor) in enumerate(outputs):
            passed_on = any(self._of.get(id(tensor)) is given for given in inputs)
            if id(tensor) not in self._named and (norm or not passed_on):
                kept = tensor.detach().clone() if place == 0 else tensor
                order = len(self._alive) + 1
                self._name(tensor, Leaf(path, element, inputs, kept, tuple(self._inside), order, norm))

    def _adds_to_the_stream(self, returned: torch.Tensor, inputs: tuple[Expression, ...]) -> bool:
        """Whether a module made a sum with the stream inside."""
        bare = unscaled(self._of.get(id(returned)))
        return isinstance(bare, Sum) and contains_stream(bare) and all(bare is not unscaled(given) for given in inputs)

    def _name(self, tensor: torch.Tensor | None, expression: Expression) -> None:
        if tensor is not None:
            depends(expression), carries_stream(expression), contains_stream(expression)  # known from the parts up
            self._of[id(tensor)] = expression
            self._alive.append(tensor)  # an id is unique among living objects only

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self._current is None:
            return out
        name = getattr(func, "__name__", "")
        self._tell(name, out, [*args, *(kwargs or {}).values()])
        if name == "__setitem__":
            self._assign(args)
        elif isinstance(out, torch.Tensor):
            self._carry(name, out, args, kwargs or {})
        elif isinstance(out, (tuple, list)):
            for place, each in enumerate(out):
                if isinstance(each, torch.Tensor):
                    self._make(f"{name}[{place}]", each, args, kwargs or {})
        return out

    def _tell(self, name: str, out: Any, given: list[Any]) -> None:
        """Note a function that tells what kind of module called it, on all modules that are running. Where a largest
        value stands tells of a choice once that place is used: a module that rounds takes the value alone.
        """
        bare = name.strip("_")
        for _, tensor in tensors(given):
            self._note("max", self._places.pop(id(tensor), ()))
        if bare == "max" and isinstance(out, tuple):
            self._places[id(out[1])] = list(self._inside)
            self._alive.append(out[1])
        told = bare if bare in CHOOSES else None
        if bare in WEIGHS:
            told = "attends" if isinstance(out, torch.Tensor) and out.ndim == 4 else "weighs"
        elif bare in ACTIVATES:
            told = "activates"
        elif bare in LOOKS_UP:
            told = "looks up"
        if told is not None:
            self._note(told, self._inside)

    def _note(self, told: str, paths: Iterable[str]) -> None:
        if self._current is not None:
            for path in paths:
                self._current.functions.setdefault(path, set()).add(told)

    def _carry(self, name: str, out: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if name in SHAPE_ONLY and args:
            known = self._known(args[0])
            if known is not None:
                self._name(out, known)
            return
        kind, reversed_ = arithmetic(name)
        plain = len(args) >= 2 and "alpha" not in kwargs and "rounding_mode" not in kwargs
        if kind in SUMS and plain:
            left, right = args[:2]
            self._add(kind, out, *((right, left) if reversed_ else (left, right)))
        elif kind in ("mul", "multiply") and plain:
            self._multiply(out, *args[:2])
        elif kind in ("div", "truediv") and plain and not reversed_ and isinstance(args[1], (int, float)):
            self._multiply(out, args[0], 1 / args[1])
        elif name in SPREADS:
            self._spread(out, args[0])
        elif name in PERMUTES:
            self._make("permute", out, args[:1], {}, detail=axes(args[0], name, args[1:], kwargs))
        elif name == "__getitem__":
            index = args[1]
            if out.numel() == args[0].numel() and not any(True for _ in tensors([index])):
                self._carry("view", out, args, {})
            else:
                self._make("select", out, args[:1], {}, detail=index if isinstance(index, (int, slice)) else None)
        elif name in ("matmul", "__matmul__", "bmm"):
            carried = [carries_stream(self._of.get(id(each))) for each in args[:2]]
            matrix = next((args[1 - place] for place in (0, 1) if carried[place]), None)
            self._make("matmul", out, args[:2], {}, used=matrix)
        else:
            self._make(name, out, args, kwargs)

    def _make(
        self, name: str, out: torch.Tensor, args: Any, kwargs: dict[str, Any], detail: object = None, used: Any = None
    ) -> None:
        operands = [self._known(tensor) for _, tensor in tensors([*args, *kwargs.values()])]
        numbers = [value for value in args if isinstance(value, (int, float))] if len(args) == 2 else []
        if any(operand is not None for operand in operands):
            made = [operand or Opaque("?", "tensor") for operand in operands]
            made += [self._operand(number) for number in numbers if not isinstance(number, bool)]
            self._name(out, Made(name, tuple(made), detail, used, len(self._alive) + 1))

    def _add(self, kind: str, out: torch.Tensor, left_value: Any, right_value: Any) -> None:
        left, right = self._operand(left_value), self._operand(right_value)
        if isinstance(left, Opaque) and isinstance(right, Opaque):
            return self._make(kind, out, (left_value, right_value), {})
        order = len(self._alive) + 1
        if kind != "add":
            right = Product(right, Opaque("-1", "constant"), order=order)
        self._name(out, Sum(left, right, order))
        return None

    def _multiply(self, out: torch.Tensor, left_value: Any, right_value: Any) -> None:
        left, right = self._operand(left_value), self._operand(right_value)
        if isinstance(left, Opaque) and isinstance(right, Opaque):
            return self._make("mul", out, (left_value, right_value), {})
        if is_factor(left, left_value, right, right_value):
            left, left_value, right, right_value = right, right_value, left, left_value
        axis = spread_axis(left_value, out)
        if isinstance(left, Made) and left.operation == "spread":
            left, axis = left.operands[0], -out.ndim
        small = isinstance(right_value, torch.Tensor) and right_value.numel() < out.numel()
        kept = isinstance(right_value, torch.Tensor) and (small or carries_stream(left) or not self._inside)
        used = right_value if kept and not isinstance(right, Opaque) else None
        self._name(out, Product(left, right, used, axis, len(self._alive) + 1))
        return None

    def _spread(self, out: torch.Tensor, value: Any) -> None:
        known = self._known(value)
        if isinstance(known, Opaque) or (known is not None and out.shape == value.shape):
            self._name(out, known)
        elif known is not None:
            self._name(out, Made("spread", (known,), order=len(self._alive) + 1))

    def _assign(self, args: tuple[Any, ...]) -> None:
        base, index, value = args[:3]
        known = self._of.get(id(base))
        if known is not None:
            order = len(self._alive) + 1
            self._name(base, Made("assign", (known, self._operand(value)), index, order=order))

    def _known(self, value: Any) -> Expression | None:
        return self._of.get(id(value)) or self._named.get(id(value))

    def _operand(self, value: Any) -> Expression:
        if not isinstance(value, torch.Tensor):
            return Opaque(f"{value:g}" if isinstance(value, (int, float)) else "?", "constant")
        return self._known(value) or Opaque("?", "tensor")


__all__ = ["BlockTrace", "Symbols", "first_tensor"]
