"""Telling by behaviour how far back a module lets positions reach."""

from __future__ import annotations

from typing import Any

import torch

from .operands import first_given

FELT = 1e-4
"""Smallest change of another position, relative to the output's scale, that is no rounding."""


def reach(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """How many positions back the output looks: the last one that moves with the input at an earlier one, less that
    one; 0 where none does. The module is run twice more.

    Args:
        module: a submodule.
        args, kwargs: what it was called with; its first tensor is `[batch, seq, …]`, or `[tokens, …]`.

    A module that cannot be run again on what it was called with counts as one that mixes nothing.
    """
    given = first_given(args, kwargs)
    if given is None or not given.is_floating_point() or given.ndim not in (2, 3):
        return 0
    axis = given.ndim - 2
    position = given.shape[axis] // 2
    moved = given.clone()
    moved.select(axis, position).mul_(-1.5)
    try:
        with torch.no_grad():
            before = _output(module, args, kwargs)
            after = _output(module, _with(args, given, moved), _with(kwargs, given, moved))
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError, KeyError):
        return 0
    if before is None or after is None or before.shape[: axis + 1] != given.shape[: axis + 1]:
        return 0
    later = (after - before).narrow(axis, position + 1, given.shape[axis] - position - 1).abs()
    felt = later.movedim(axis, 0).flatten(1).amax(1) > FELT * max(float(before.abs().max()), 1e-30)
    return int(felt.nonzero().max()) + 1 if bool(felt.any()) else 0


def _with(values: Any, old: torch.Tensor, new: torch.Tensor) -> Any:
    if isinstance(values, dict):
        return {name: new if value is old else value for name, value in values.items()}
    return tuple(new if value is old else value for value in values)


def _output(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
    output = module.forward(*args, **kwargs)
    while isinstance(output, (tuple, list)) and output:
        output = output[0]
    return output.float() if isinstance(output, torch.Tensor) else None
