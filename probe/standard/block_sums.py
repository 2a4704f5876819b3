"""What a block's output is made of, as weights: the stream that enters it, and each contribution.

For whoever takes a stream apart. The sums are derived from one recorded forward (:mod:`probe.wiring.anatomy`); a
second one finds the standard value that holds each term.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

from ..errors import ProbeError
from ..wiring.anatomy import BlockAnatomy, Underivable, derive, held_value
from ..wiring.nodes import LaneNode, LanesNode, MixNode, Node, NormNode, OuterNode, every
from ..wiring.sums import factors, value
from .inputs import prepare
from .stack import CONTRIBUTIONS, Stack
from .trace import read_all

if TYPE_CHECKING:
    from .transformer import StandardizedTransformer

LABEL = "model.layers[i]"


@dataclass(frozen=True)
class WeightedTerm:
    """One contribution: ``value`` is its name from the block (``mlp.mlp_output``), ``weight`` what multiplies it."""

    value: str
    weight: float | torch.Tensor


@dataclass(frozen=True)
class BlockSum:
    """``layer_output == stream * layer_input + the terms, each times its weight + constant``.

    A weight is a number, or ``[hidden_size]`` where dimensions differ. ``terms`` are in the order of the forward pass.
    """

    stream: float | torch.Tensor
    terms: tuple[WeightedTerm, ...]
    constant: float | torch.Tensor


def block_sums(model: StandardizedTransformer) -> list[BlockSum]:
    """Every block's sum: two forward passes over the probe's own prompt.

    Raises:
        ProbeError: a block's output is no sum with weights that are the same in every run; says which and why.
    """
    envoys, target = list(model.layers), model.loaded.target
    _, inputs = prepare(model)
    try:
        anatomies = derive([envoy._module for envoy in envoys], lambda: model._module(**inputs, use_cache=False))
    except Underivable as error:
        raise ProbeError(f"{target.id}: {error}.") from error
    for index, anatomy in enumerate(anatomies):
        if reason := _without_weights(anatomy.tree):
            raise ProbeError(f"The contributions of {target.family} have no fixed weights: block {index} {reason}.")
    readings = read_all(model, inputs, lambda key: key.name in CONTRIBUTIONS and key.host.startswith(LABEL))
    stack = Stack(LABEL, envoys, anatomies, readings)
    return [_sum(stack, index, anatomy, model.hidden_size) for index, anatomy in enumerate(anatomies)]


def _without_weights(tree: Node) -> str | None:
    """Why a sum is not linear in the stream and its terms with constants; None where it is."""
    if gates := [factor.name for factor in factors(tree) if factor.kind == "gate"]:
        return f"multiplies by what it computes from the stream ({', '.join(dict.fromkeys(gates))})"
    for node in every(tree):
        if isinstance(node, NormNode):
            return f"norms the stream itself ({node.norm})"
        if isinstance(node, (LaneNode, LanesNode, MixNode, OuterNode)):
            return "spreads the stream over several lanes"
    return None


def _sum(stack: Stack, index: int, anatomy: BlockAnatomy, width: int) -> BlockSum:
    """The weights, each the sum's answer to a one in its place and zeros in the others."""
    names = [f"{each.host}.{each.name}".lstrip(".") for each in stack.contributions[index]]
    number = partial(held_value, stack.envoys[index]._module, anatomy)
    device = anatomy.terms[0].tensor.device if anatomy.terms else None
    zero, one = torch.zeros(width, device=device), torch.ones(width, device=device)

    def answer(stream: torch.Tensor, place: int | None = None) -> torch.Tensor:
        terms = [one if k == place else zero for k in range(len(names))]
        with torch.no_grad():
            return value(anatomy.tree, stream, terms, number, lambda _, part: part)

    constant = answer(zero)
    weights = [_short(answer(zero, place) - constant) for place in range(len(names))]
    terms = tuple(map(WeightedTerm, names, weights))
    return BlockSum(_short(answer(one) - constant), terms, _short(constant))


def _short(weight: torch.Tensor) -> float | torch.Tensor:
    """One number where all dimensions have the same."""
    first = weight.flatten()[0]
    return float(first) if bool((weight == first).all()) else weight
