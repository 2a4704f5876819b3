"""A mixer's short convolution: how far back it reads, what stands before the first token, its bias and activation.

What the convolution gave is made again from what it took, with zeros before the first token. What makes another result
when it is left out, a place of the kernel or the bias, is part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ...measure.checks.mixer import ACTIVATIONS
from ...measure.native import native_path
from ...measure.run import Run
from ...schema import Fact, Scalar
from ..answers import tolerance
from ..base import Measured
from .mixer_projections import mixers

WORDS = {
    "silu": "SiLU",
    "sigmoid": "a sigmoid",
    "gelu_tanh": "the GELU of the tanh approximation",
    "gelu": "the exact GELU",
}
"""What the activations are called."""


@dataclass(frozen=True)
class Convolution:
    """What was found of a convolution over the tokens.

    Attributes:
        path: of its module, from the mixer.
        before: how many earlier positions the value at a position is made of, beside its own.
        bias: whether it adds one.
        activation: a key of the activations that are tried; empty for none.
    """

    path: str
    before: int
    bias: bool
    activation: str


def convolution_facts(run: Run) -> list[Fact]:
    """One for each kind of mixer whose convolution is a module, what it took and gave was read, and the one gives the
    other.
    """
    facts: dict[str, Fact] = {}
    for index, host, module in mixers(run):
        kind = type(module).__name__
        given, taken = (run.text.get(index, host, name) for name in ("conv_input", "conv_output"))
        if kind in facts or given is None or taken is None:
            continue
        found = examine(module, given.float(), taken.float(), tolerance(run))
        if found is None:
            continue
        path = f"{native_path(run, index, module)}.{found.path}"
        entries = _entries(run, found.before + 1)
        measured: Measured = {"module": path, "bias": found.bias, "entries": [*entries]}
        if found.activation:
            measured["activation"] = found.activation
        facts[kind] = Fact(
            name="convolution" if not facts else f"convolution_{kind}",
            label="Positions before its own that the convolution reads",
            value=found.before,
            measured=measured,
            statement=_said(path, found, entries),
        )
    return [*facts.values()]


def examine(module: torch.nn.Module, given: torch.Tensor, taken: torch.Tensor, close: float) -> Convolution | None:
    """What a mixer's convolution is; None where none of its modules gives what was read.

    Args:
        given: what it takes, ``[batch, seq, channels]``.
        taken: what it gives, alike, after its activation.
        close: largest difference, relative to the largest number, at which two results are the same.
    """
    for path, child in module.named_modules():
        if not isinstance(child, torch.nn.Conv1d) or child.weight.shape[0] != taken.shape[-1]:
            continue
        if child.weight.shape[1] * child.groups != given.shape[-1]:
            continue
        weight = child.weight.detach().float()
        bias = None if child.bias is None else child.bias.detach().float()
        for activation in ACTIVATIONS:

            def same(
                weight: torch.Tensor, bias: torch.Tensor | None, name: str = activation, groups: int = child.groups
            ) -> bool:
                made = ACTIVATIONS[name](_convolved(given, weight, bias, groups))
                return float((made - taken).abs().max()) <= close * float(taken.abs().max())

            if same(weight, bias):
                places = [place for place in range(weight.shape[-1]) if not same(_without(weight, place), bias)]
                before = weight.shape[-1] - 1 - min(places, default=weight.shape[-1] - 1)
                return Convolution(path, before, bias is not None and not same(weight, None), activation)
    return None


def _convolved(given: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, groups: int) -> torch.Tensor:
    """A convolution over the tokens that reads no later one, with zeros before the first."""
    padded = torch.nn.functional.pad(given.transpose(1, 2), (weight.shape[-1] - 1, 0))
    return torch.nn.functional.conv1d(padded, weight, bias, groups=groups).transpose(1, 2)


def _without(weight: torch.Tensor, place: int) -> torch.Tensor:
    other = weight.clone()
    other[..., place] = 0
    return other


def _entries(run: Run, width: int) -> Mapping[str, Scalar]:
    """The config's entry for the width of the kernel, where a single one named after a convolution has that number."""
    found = {
        name: held
        for name, held in sorted(run.model.text_config.to_dict().items())
        if "conv" in name and type(held) is int and held == width
    }
    return found if len(found) == 1 else {}


def _said(path: str, found: Convolution, entries: Mapping[str, Scalar]) -> str:
    earlier = f"the {found.before} before it" if found.before > 1 else "the one before it"
    reads = f"its own position and {earlier}" if found.before else "its own position alone"
    width = "".join(f" (`{name}` is {held})" for name, held in entries.items())
    bias = "a bias is added" if found.bias else "it has no bias"
    after = f"{WORDS[found.activation]} follows" if found.activation else "no activation follows"
    return (
        f"The short convolution `{path}` makes a value from {reads}{width}; before the first token stand zeros, "
        f"{bias}, and {after}."
    )
