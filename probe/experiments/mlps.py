"""Activations and linear layers: what a function is by its values on a grid, and whether a projection is linear."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from ..measure.edits import noise_like
from ..measure.run import Run
from .activations import activation_modules, functions, grid
from .answers import per_block, small, tolerance
from .base import Measured, Quirk, Verdict, some
from .extra import once
from .reweighted import called_with

NO_MLP = "No contribution is an MLP's."


def squared_relu(run: Run) -> Verdict:
    """Calls the MLPs' activation modules on a grid, and compares what their arithmetic does without a module, with a
    few functions: relu squared makes the answer yes.
    """
    every = functions(run)
    names = {name for found in every if found is not None for name in found}
    measured: Measured = {}
    if names:
        measured["function"] = sorted(names)[0] if len(names) == 1 else sorted(names)
    return per_block([None if found is None else "relu_squared" in found for found in every], measured, absent=NO_MLP)


def learned_activation(run: Run) -> Verdict:
    """Counts an activation's parameters, and takes it as learned where they move its values."""
    numbers = grid(run)
    found: list[bool | None] = []
    for index, names in enumerate(functions(run)):
        if names is None:
            found.append(None)
            continue
        found.append(any(_learned(module, numbers) for module in activation_modules(run, index)))
    return per_block(found, absent=NO_MLP)


def _learned(module: torch.nn.Module, numbers: torch.Tensor) -> bool:
    other = {name: parameter + 1 for name, parameter in module.named_parameters()}
    with torch.no_grad():
        return bool(other) and not torch.allclose(module(numbers), called_with(module, other, numbers))


def quantized_linears(run: Run) -> Verdict:
    """Compares a projection of a sum of inputs, and with a sum of weights, with the sum of projections: rounding on
    the way breaks one of them.
    """
    found: list[bool | None] = []
    largest = 0.0
    for envoy in run.text.envoys:
        tried = [_not_additive(module, run) for module in _holding_a_matrix(envoy._module)]
        errors = [error for error in tried if error is not None]
        found.append(max(errors) > 10 * tolerance(run) if errors else None)
        largest = max([largest, *errors])
    return per_block(found, {"largest_error": small(run, largest)}, absent="The blocks have no linear projections.")


def _holding_a_matrix(block: torch.nn.Module) -> Iterator[torch.nn.Module]:
    for module in block.modules():
        weight = dict(module.named_parameters(recurse=False)).get("weight")
        if weight is not None and weight.ndim == 2:
            yield module


ROWS = 64
"""Rows of a projection's matrix that are tried; a layer that rounds does so in any of them."""

ROUNDING = 0.25
"""How far the response to a doubled input may be from the doubled response in a layer that rounds; further, and the
module is a norm, a router or another thing that is no projection.
"""


def _not_additive(module: torch.nn.Module, run: Run) -> float | None:
    """Largest relative difference between f(x + y) - f(y) and f(x) - f(0), in the input and in the weight; None for a
    module that is no projection of one vector.
    """
    weight = module.get_parameter("weight")
    rows = _inputs(run, int(getattr(module, "in_features", weight.shape[0])))
    try:
        with torch.no_grad():
            one, summed, other, zero = _responses(module, rows)
            still, first, second, both, doubled = one.unflatten(0, (5, -1))
            at_first = slice(len(first), 2 * len(first))
            given = torch.stack([doubled - still, both - second, (summed - one)[at_first]])
            wanted = torch.stack([2 * (first - still), first - still, (other - zero)[at_first]])
            apart = (given - wanted).abs().amax((1, 2)) / wanted.abs().amax((1, 2)).clamp_min(1e-30)
    except (RuntimeError, TypeError, AttributeError, IndexError, ValueError):
        return None
    to_double, in_input, in_weight = apart.tolist()
    return None if to_double > ROUNDING else max(in_input, in_weight)


@once
def _inputs(run: Run, width: int) -> torch.Tensor:
    """Vectors of zeros, some of noise, others, their sums, and the first ones doubled: ``[5 * 4, width]``."""
    one, two = noise_like(torch.empty(2, 4, width)).to(run.model.device, run.dtype)
    return torch.cat([torch.zeros_like(one), one, two, one + two, 2 * one])


def _responses(module: torch.nn.Module, rows: torch.Tensor) -> Sequence[torch.Tensor]:
    """What a module gives in float32 for its weight, for the sum of it and another, for the other, and for zeros. Where
    each row of the weight gives a number of its own, the four stand in one matrix.
    """
    parameters = dict(module.named_parameters(recurse=False))
    whole = parameters["weight"]
    weight = whole[:ROWS] if hasattr(module, "in_features") else whole
    other = weight.roll(1, 0)
    matrices = (weight, weight + other, other, torch.zeros_like(weight))
    if weight is whole:
        return [called_with(module, {"weight": matrix}, rows).float() for matrix in matrices]
    by_row = {name: held for name, held in parameters.items() if held.shape[:1] == whole.shape[:1]}
    tried = {name: torch.cat([held[:ROWS]] * 4) for name, held in by_row.items()} | {"weight": torch.cat(matrices)}
    out: torch.Tensor = called_with(module, tried, rows)
    return out.float().chunk(4, -1)


QUIRKS = (
    Quirk(
        "squared-relu",
        "Squared ReLU",
        "text",
        squared_relu,
        lambda m, b, n: f"The MLP's activation on {some(b or [], n)} is relu(x)².",
    ),
    Quirk(
        "learned-activation",
        "Learned activation",
        "text",
        learned_activation,
        lambda m, b, n: f"The MLP's activation on {some(b or [], n)} has parameters of its own.",
    ),
    Quirk(
        "quantized-linears",
        "Quantised projections",
        "text",
        quantized_linears,
        lambda m, b, n: (
            f"On {some(b or [], n)} a projection rounds its input or its weight in the forward, so that it is not "
            "linear."
        ),
    ),
)
