"""Activations and linear layers: what a function is by its values on a grid, and whether a projection is linear."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from ...instruments.extra import once
from ...instruments.reweighted import called_with
from ...measure.edits import noise_like
from ...measure.run import Run
from ..answers import per_block, small, tolerance
from ..base import Measured, Quirk, Verdict, some
from .activations import activation_modules, functions, grid

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
    modules = [(index, module) for index, envoy in enumerate(run.text.envoys) for module in _matrices(envoy._module)]
    errors: list[list[float]] = [[] for _ in run.text.envoys]
    for (index, _), error in zip(modules, _not_additive(run, [module for _, module in modules]), strict=True):
        errors[index] += [] if error is None else [error]
    found = [max(each) > 10 * tolerance(run) if each else None for each in errors]
    largest = max((error for each in errors for error in each), default=0.0)
    return per_block(found, {"largest_error": small(run, largest)}, absent="The blocks have no linear projections.")


def _matrices(block: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The modules that hold a matrix as their weight."""
    for module in block.modules():
        weight = module._parameters.get("weight")
        if weight is not None and weight.ndim == 2:
            yield module


ROWS = 64
"""Rows of a projection's matrix that are tried; a layer that rounds does so in any of them."""

ROUNDING = 0.25
"""How far the response to a doubled input may be from the doubled response in a layer that rounds; further, and the
module is a norm, a router or another thing that is no projection.
"""


def _not_additive(run: Run, modules: Sequence[torch.nn.Module]) -> list[float | None]:
    """For each module the largest relative difference between f(x + y) - f(y) and f(x) - f(0), in the input and in the
    weight; None for a module that is no projection of one vector.
    """
    alike: dict[int, dict[int, torch.Tensor]] = {}
    with torch.no_grad():
        for index, module in enumerate(modules):
            out = _responses(run, module)
            if out is not None:
                alike.setdefault(out.shape[-1], {})[index] = out
        apart = {
            index: numbers
            for outs in alike.values()
            for index, numbers in zip(outs, _apart(torch.stack([*outs.values()])).tolist(), strict=True)
        }
    found: list[float | None] = [None] * len(modules)
    for index, (to_double, in_input, in_weight) in apart.items():
        found[index] = None if to_double > ROUNDING else max(in_input, in_weight)
    return found


def _apart(outs: torch.Tensor) -> torch.Tensor:
    """How far the responses of modules, ``[modules, 4, 5 * 4, width]``, are from doubling, and from adding up in the
    input and in the weight: ``[modules, 3]``, relative to their size.
    """
    still, first, second, both, doubled = outs[:, 0].unflatten(1, (5, -1)).unbind(1)
    one, summed, other, zero = outs.unflatten(2, (5, -1))[:, :, 1].unbind(1)
    given = torch.stack([doubled - still, both - second, summed - one], 1)
    wanted = torch.stack([2 * (first - still), first - still, other - zero], 1)
    return (given - wanted).abs().amax((2, 3)) / wanted.abs().amax((2, 3)).clamp_min(1e-30)


@once
def _inputs(run: Run, width: int) -> torch.Tensor:
    """Vectors of zeros, some of noise, others, their sums, and the first ones doubled: ``[5 * 4, width]``."""
    one, two = noise_like(torch.empty(2, 4, width)).to(run.model.device, run.dtype)
    return torch.cat([torch.zeros_like(one), one, two, one + two, 2 * one])


def _responses(run: Run, module: torch.nn.Module) -> torch.Tensor | None:
    """What a module gives in float32 for its weight, for the sum of it and another, for the other, and for zeros,
    ``[4, 5 * 4, width]``; None where it gives no vector for each of the inputs. Where each row of the weight gives a
    number of its own, the four stand in one matrix.
    """
    parameters = {name: held for name, held in module._parameters.items() if held is not None}
    whole = parameters["weight"]
    by_rows = hasattr(module, "in_features")
    weight = whole[:ROWS] if by_rows else whole
    other = weight.roll(1, 0)
    matrices = (weight, weight + other, other, torch.zeros_like(weight))
    rows = _inputs(run, int(getattr(module, "in_features", whole.shape[0])))
    try:
        if by_rows:
            by_row = {name: held for name, held in parameters.items() if held.shape[:1] == whole.shape[:1]}
            tried = {name: torch.cat([held[:ROWS]] * 4) for name, held in by_row.items() if name != "weight"}
            joined: torch.Tensor = called_with(module, {**tried, "weight": torch.cat(matrices)}, rows)
            out = joined.float().unflatten(-1, (4, -1)).movedim(-2, 0)
        else:
            out = torch.stack([called_with(module, {"weight": matrix}, rows).float() for matrix in matrices])
    except (RuntimeError, TypeError, AttributeError, IndexError, ValueError):
        return None
    return out if out.ndim == 3 and out.shape[1] == len(rows) else None


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
