"""Activations and linear layers: what a function is by its values on a grid, and whether a projection is linear."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..measure.edits import noise_like
from ..measure.run import Run
from .answers import per_block, small, tolerance
from .base import Measured, Quirk, Verdict, some
from .extra import part

KNOWN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "relu": torch.relu,
    "relu_squared": lambda x: torch.relu(x).square(),
}
"""Functions that a grid can tell apart."""


def _activations(run: Run) -> list[torch.nn.Module | None]:
    found: list[torch.nn.Module | None] = []
    for envoy in run.text.envoys:
        hosts = (part(envoy, f"{host}.act_fn") for host in ("mlp", "mlp.shared_experts"))
        found.append(next((host._module for host in hosts if host is not None), None))
    return found


def squared_relu(run: Run) -> Verdict:
    """Calls the activation on a grid and looks for a function that it is: relu squared, or another."""
    grid = torch.linspace(-4, 4, 81, dtype=run.dtype, device=run.model.device)
    found: list[bool | None] = []
    names = set()
    for module in _activations(run):
        if module is None:
            found.append(None)
            continue
        with torch.no_grad():
            given = module(grid).float()
        off = {name: float((function(grid.float()) - given).abs().max()) for name, function in KNOWN.items()}
        name = min(off, key=off.__getitem__)
        names.add(name if off[name] < tolerance(run) else "unknown")
        found.append(name == "relu_squared" and off[name] < tolerance(run))
    measured: Measured = {"function": sorted(names)[0] if len(names) == 1 else sorted(names)} if names else {}
    return per_block(found, measured, absent="The MLPs keep no activation module of their own.")


def learned_activation(run: Run) -> Verdict:
    """Counts an activation's parameters, and takes it as learned where they move its values."""
    grid = torch.linspace(-4, 4, 81, dtype=run.dtype, device=run.model.device)
    found: list[bool | None] = []
    for module in _activations(run):
        if module is None:
            found.append(None)
            continue
        other = {name: parameter + 1 for name, parameter in module.named_parameters()}
        with torch.no_grad():
            found.append(
                bool(other) and not torch.allclose(module(grid), torch.func.functional_call(module, other, (grid,)))
            )
    return per_block(found, absent="The MLPs keep no activation module of their own.")


def quantized_linears(run: Run) -> Verdict:
    """Compares a projection of a sum of inputs, and with a sum of weights, with the sum of projections: rounding on
    the way breaks one of them.
    """
    found: list[bool | None] = []
    largest = 0.0
    for envoy in run.text.envoys:
        paths = [
            f"{host}.{name}_proj"
            for host in ("self_attn", "mlp")
            for name in ("q", "k", "v", "o", "gate", "up", "down")
        ]
        modules = [host._module for host in (part(envoy, path) for path in paths) if host is not None]
        errors = [
            _not_additive(module, run) for module in modules if "weight" in dict(module.named_parameters(recurse=False))
        ]
        found.append(max(errors) > 10 * tolerance(run) if errors else None)
        largest = max([largest, *errors])
    return per_block(found, {"largest_error": small(run, largest)}, absent="The blocks have no linear projections.")


ROWS = 64
"""Rows of a projection's matrix that are tried; a layer that rounds does so in any of them."""


def _not_additive(module: torch.nn.Module, run: Run) -> float:
    """Largest relative difference between f(x + y) - f(y) and f(x) - f(0), in the input and in the weight."""
    rows = {name: parameter[:ROWS] for name, parameter in module.named_parameters(recurse=False)}
    weight = rows["weight"]
    one, two = noise_like(torch.empty(2, 4, weight.shape[-1])).to(run.dtype).to(weight.device)
    other = weight.roll(1, 0)

    def call(inputs: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(module, {**rows, "weight": matrix}, (inputs,)).float()

    with torch.no_grad():
        still = torch.zeros_like(one)
        in_input = (call(one + two, weight) - call(two, weight), call(one, weight) - call(still, weight))
        none = torch.zeros_like(weight)
        in_weight = (call(one, weight + other) - call(one, weight), call(one, other) - call(one, none))
    return max(float((left - right).abs().max() / right.abs().max()) for left, right in (in_input, in_weight))


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
