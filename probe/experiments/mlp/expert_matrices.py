"""Which axis of a stacked expert's matrix a token's numbers go in by, seen by a gradient.

A mixture is called with one token, and a sum of what it returns is differentiated. On an expert's matrix that gradient
is a product of two vectors: of what enters it, and of the gradient of what leaves it. The one is what its module was
called with where the matrix reads that; the other the gradient of what its module returned where it writes that; what
is left tells the neurons. So the axis of each is seen also where both have the same length.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ...instruments.reweighted import called_with
from ...instruments.tap import removed
from ...wiring.operands import first_given, first_tensor

ALIKE = 1e-4
"""How far two vectors may be apart, relative to the second, to point the same way."""

Side = Literal["reads", "writes"]


@dataclass(frozen=True)
class Matrix:
    """One expert's matrix.

    Attributes:
        name: of the parameter that holds all experts', from the mixture.
        side: whether it reads the token or writes the output.
        input_first: whether the axis of what enters it stands before that of what leaves it.
        inner: on a writing one what enters it, the neurons times a factor that they share; on a reading one the
            gradient of what leaves it.
    """

    name: str
    side: Side
    input_first: bool
    inner: torch.Tensor


class Mixture:
    """One mixture, called with one token.

    Attributes:
        stacks: the parameters that hold a matrix for each of several experts, ``[experts, rows, columns]``; those of
            experts that lie side by side in one matrix too.
        expert: one that the token was sent to.
        sent: all that the token was sent to, in the calls that showed them.
        entering: for each stack what its own module was called with: the row with the largest numbers.
    """

    def __init__(self, module: torch.nn.Module, token: torch.Tensor, count: int = 0) -> None:
        self.module = module
        self.token = token
        self.given = _given(module, token)
        self.expert = 0
        self.sent: frozenset[int] = frozenset()
        self.entering: dict[str, torch.Tensor] = {}
        self._shapes = {name: p.shape for name, p in module.named_parameters()}
        self.stacks = {
            name: stack
            for name, p in module.named_parameters()
            if p.is_floating_point() and (stack := _stack(p, count)) is not None
        }

    def matrices(self, changed: Mapping[str, torch.Tensor] | None = None) -> dict[str, Matrix]:
        """The matrices of an expert that the token is sent to; none where they cannot be told."""
        leaves = {
            name: p.detach().clone().reshape(self._shapes[name]).requires_grad_()
            for name, p in {**self.stacks, **(changed or {})}.items()
        }
        given: dict[str, torch.Tensor] = {}
        made: dict[str, torch.Tensor] = {}
        with torch.enable_grad(), ExitStack() as stack:
            for name in leaves:
                owner = self.module.get_submodule(name.rpartition(".")[0])
                hook = owner.register_forward_hook(_keeping(name, given, made), with_kwargs=True)
                stack.enter_context(removed(hook))
            out = first_tensor(called_with(self.module, leaves, *self.given))
            if out is None or not out.requires_grad or leaves.keys() - made.keys():
                return {}
            weights = torch.linspace(1, 2, out.numel(), dtype=out.dtype, device=out.device).sqrt().cos()
            wanted = [*leaves.values(), *(made[name] for name in leaves)]
            gradients = torch.autograd.grad((out.flatten() * weights).sum(), wanted, allow_unused=True)
        self.entering = {name: _largest(tensor) for name, tensor in given.items()}
        found = {}
        for name, gradient, leaving in zip(leaves, gradients, gradients[len(leaves) :], strict=False):
            if gradient is None or leaving is None or not bool(gradient.any()):
                continue
            parts = gradient.reshape(self.stacks[name].shape)
            sent = parts.flatten(1).abs().amax(1).gt(0).nonzero().flatten().tolist()
            if gradient.ndim < 3 and len(sent) == len(parts):
                continue  # no expert has a part of its own
            self.sent |= {*sent}
            for expert in sent:  # where each has a call of its own, the last call was kept
                matrix = _matrix(name, parts[expert], self.entering[name], _largest(leaving))
                if matrix is not None:
                    found[name], self.expert = matrix, expert
                    break
        return found

    def output(self, changed: Mapping[str, torch.Tensor] | None = None) -> torch.Tensor | None:
        """What it gives for the token, one row, with these parameters in the place of its own."""
        with torch.no_grad():
            out = first_tensor(called_with(self.module, changed or {}, *self.given))
        return None if out is None else out.flatten()

    def moved(self, changed: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
        """How much of what it gives is other with these parameters."""
        own, other = self.output(), self.output(changed)
        return None if own is None or other is None else other - own

    def enters_as_it_is(self, name: str) -> bool:
        """Whether the module that owns a matrix is called with the token itself, and not with a multiple of it."""
        entering = self.entering[name]
        return entering.shape == self.token.flatten().shape and bool((entering == self.token.flatten()).all())


def _stack(parameter: torch.nn.Parameter, count: int) -> torch.Tensor | None:
    """A parameter with an expert on its first axis; None where it cannot hold a matrix for each."""
    if parameter.ndim == 3 and parameter.shape[0] > 1:
        return parameter
    if parameter.ndim == 2 and count > 1 and parameter.shape[0] % count == 0 and parameter.shape[0] > count:
        return parameter.detach().unflatten(0, (count, -1))
    return None


def _given(module: torch.nn.Module, token: torch.Tensor) -> list[torch.Tensor]:
    """What a mixture is called with: the token ``[1, 1, width]``; experts without a router of their own its row, a
    choice of the first expert and a weight of one, in the order in which they name these.
    """
    names = [*inspect.signature(type(module).forward).parameters][2:]
    choice = [name for name in names if "ind" in name or "weight" in name]
    if len(names) != 2 or len(choice) != 2:
        return [token]
    ones = torch.ones(1, 1, dtype=token.dtype, device=token.device)
    return [token[0], *(torch.zeros_like(ones, dtype=torch.long) if "ind" in name else ones for name in choice)]


def _keeping(name: str, given: dict[str, torch.Tensor], made: dict[str, torch.Tensor]) -> Callable[..., None]:
    def keep(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        entering = first_given(args, kwargs)
        leaving = first_tensor(output)
        if entering is not None and leaving is not None and leaving.requires_grad:
            given[name], made[name] = entering.detach(), leaving

    return keep


def _largest(rows: torch.Tensor) -> torch.Tensor:
    """Of rows on the last axis the one with the largest numbers."""
    flat = rows.reshape(-1, rows.shape[-1])
    return flat[int(flat.abs().amax(-1).argmax())]


def _matrix(name: str, gradient: torch.Tensor, entering: torch.Tensor, leaving: torch.Tensor) -> Matrix | None:
    """What a gradient ``[rows, columns]`` of one expert's matrix shows, a product of two vectors, of which one is what
    entered its module or the gradient of what left it.
    """
    ways: list[tuple[Side, torch.Tensor]] = [("reads", entering), ("writes", leaving)]
    for side, known in ways:
        for rows in (True, False):
            turned = gradient if rows else gradient.T
            if turned.shape[0] != len(known):
                continue
            other = known @ turned / known.square().sum()
            if float((torch.outer(known, other) - turned).abs().max()) <= ALIKE * float(turned.abs().max()):
                return Matrix(name, side, rows == (side == "reads"), other)
    return None
