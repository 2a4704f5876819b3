"""How stacked experts' weights are stored: which axis a token goes in by, and where gates lie in a fused matrix.

The axes are seen by a gradient. One output of the fused matrix, or of each of two that stand apart, is then made
smaller: a neuron that follows it along a straight line multiplies by it, any other is gated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ...measure.listing import listed
from ...measure.native import native_path
from ...measure.run import Run
from ...schema import Fact
from ..calls.halves import plain_experts
from .expert_matrices import Matrix, Mixture

STRAIGHT = 1e-3
"""How far a neuron may be from a straight line, relative to its change, to follow it."""

SEEDS = 4
"""Tokens tried until each output that is looked at moves a neuron: some activations give nothing for half of all."""

SLOPES = torch.arange(500, 3001, dtype=torch.float64) / 1000
"""Slopes that are tried for a gate's sigmoid."""

Order = Literal["halves, gates first", "halves, gates last", "gates on even places", "gates on odd places"]

SAYS: dict[Order, str] = {
    "halves, gates first": "the first half are the gates, the second half what they multiply",
    "halves, gates last": "the second half are the gates, the first half what they multiply",
    "gates on even places": "gates and what they multiply alternate, a gate first",
    "gates on odd places": "gates and what they multiply alternate, a gate second",
}


@dataclass(frozen=True)
class Found:
    """The matrices of one mixture, the order and name of the fused one, or of two that stand apart the gates' and the
    one whose outputs these multiply; and the gates' form if that has a sigmoid.
    """

    matrices: tuple[Matrix, ...]
    order: Order | None
    fused: str | None
    gates: tuple[str, str] | None
    slope: float | None
    offset: int | None

    @property
    def whole(self) -> bool:
        """Whether the gates were found."""
        return self.order is not None or self.gates is not None


def examine(mixture: Mixture) -> Found | None:
    """The matrices of a mixture and the order of a fused one; None where no stacked matrix is seen."""
    found = mixture.matrices()
    reading = [matrix for matrix in found.values() if matrix.side == "reads"]
    writing = [matrix for matrix in found.values() if matrix.side == "writes"]
    if not reading and not writing:
        return None
    order, gates, slope, offset = None, None, None, None
    fused = [(one, two) for one in reading for two in writing if _pair(one, two, 2)]
    apart = [(one, two) for one in reading for two in writing if _pair(one, two, 1)]
    if len(fused) == 1:
        order = _order(mixture, *fused[0])
        if order is not None:
            slope, offset = _gate(fused[0][1], _halves(mixture, fused[0][0], order))
    elif len(apart) == 2 and apart[0][1] is apart[1][1]:
        gates = _apart(mixture, apart[0][0], apart[1][0], apart[0][1])
        if gates is not None:
            slope, offset = _gate(apart[0][1], [_given(mixture, matrix) for matrix in gates])
    names = (gates[0].name, gates[1].name) if gates else None
    return Found((*reading, *writing), order, fused[0][0].name if order else None, names, slope, offset)


def _pair(reading: Matrix, writing: Matrix, times: int) -> bool:
    """Whether a matrix gives so many numbers for each that enters the other, which stands beside it."""
    stems = [name.removesuffix(".weight").rpartition(".")[0] for name in (reading.name, writing.name)]
    return stems[0] == stems[1] and len(reading.inner) == times * len(writing.inner)


def _apart(mixture: Mixture, one: Matrix, other: Matrix, writing: Matrix) -> tuple[Matrix, Matrix] | None:
    """Of two matrices that give a number a neuron each, the one whose number a neuron does not follow along a straight
    line, which gives the gates, and the other; None where both or neither bend it.
    """
    last = len(writing.inner) - 1
    moved = {m.name: [_moved(mixture, m, writing, place) for place in (0, last)] for m in (one, other)}
    lines = {name: {each and each[1] for each in seen} for name, seen in moved.items()}
    if any([each and each[0] for each in seen] != [0, last] for seen in moved.values()):
        return None
    if [lines[one.name], lines[other.name]] == [{False}, {True}]:
        return one, other
    if [lines[one.name], lines[other.name]] == [{True}, {False}]:
        return other, one
    return None


def _order(mixture: Mixture, reading: Matrix, writing: Matrix) -> Order | None:
    """Which neuron some of the fused matrix's outputs move, and which of the two of a neuron does so along a line."""
    half = len(writing.inner)
    asked = {place: (place % half, place // 2) for place in (0, 1, half, half + 1, 2 * half - 1)}
    moved = {place: _moved(mixture, reading, writing, place) for place in asked}
    if any(each is None for each in moved.values()):
        return None
    neurons = {place: each[0] for place, each in moved.items() if each is not None}
    straight = {place: each[1] for place, each in moved.items() if each is not None}
    if all(neurons[place] == halves for place, (halves, _) in asked.items()) and straight[0] != straight[half]:
        return "halves, gates last" if straight[0] else "halves, gates first"
    if all(neurons[place] == paired for place, (_, paired) in asked.items()) and straight[0] != straight[1]:
        return "gates on odd places" if straight[0] else "gates on even places"
    return None


def _moved(mixture: Mixture, reading: Matrix, writing: Matrix, place: int) -> tuple[int, bool] | None:
    """The neuron that one output of the fused matrix moves, and whether it follows that output along a straight line;
    None where it moves several or none.
    """
    inner = []
    for factor in (0.0, 0.5, 1.0):
        stack = mixture.stacks[reading.name].detach().clone()
        part = stack[mixture.expert]
        (part[:, place] if reading.input_first else part[place]).mul_(factor)
        made = mixture.matrices({reading.name: stack}).get(writing.name)
        if made is None or len(made.inner) != len(writing.inner):
            return None
        inner.append(made.inner)
    none, middle, whole = inner
    change = (whole - none).abs()
    moves = (change > 1e-5 * float(whole.abs().max())).nonzero().flatten().tolist()
    if len(moves) != 1:
        return None
    [neuron] = moves
    bent = abs(float(middle[neuron] - (none[neuron] + whole[neuron]) / 2))
    return neuron, bent < STRAIGHT * float(change[neuron])


def _given(mixture: Mixture, reading: Matrix) -> torch.Tensor | None:
    """What an expert's matrix gives for the token; None where what enters it is another."""
    if not mixture.enters_as_it_is(reading.name):
        return None
    stack = mixture.stacks[reading.name].detach()[mixture.expert]
    given = mixture.token.flatten() @ stack if reading.input_first else stack @ mixture.token.flatten()
    bias = [p for n, p in mixture.module.named_parameters() if n.startswith(reading.name) and n != reading.name]
    if bias and bias[0].shape == (mixture.stacks[reading.name].shape[0], len(given)):
        given = given + bias[0].detach()[mixture.expert]
    return given.double()


def _halves(mixture: Mixture, reading: Matrix, order: Order) -> list[torch.Tensor | None]:
    """The gates among what a fused matrix gives, and what they multiply."""
    given = _given(mixture, reading)
    if given is None:
        return [None, None]
    first, second = given.chunk(2) if order.startswith("halves") else (given[::2], given[1::2])
    return [first, second] if order in ("halves, gates first", "gates on even places") else [second, first]


def _gate(writing: Matrix, given: Sequence[torch.Tensor | None]) -> tuple[float | None, int | None]:
    """The slope s and the offset o of neurons ``gate * sigmoid(s * gate) * (up + o)``; None where they are no such
    product.

    Args:
        given: gates and what they multiply, each None where it is not known.
    """
    (gate, up), inner = given, writing.inner.double()
    if gate is None or up is None:
        return None, None
    for offset in (0, 1):
        rest = inner / (gate * (up + offset))
        known = rest.isfinite() & (gate.abs() > 1e-2) & ((up + offset).abs() > 1e-2)
        if int(known.sum()) < 4:
            continue
        ratios = rest[known] / torch.sigmoid(SLOPES[:, None].to(rest.device) * gate[known])
        spread = ratios.std(1) / ratios.mean(1).abs().clamp_min(1e-30)
        best = int(spread.argmin())
        if float(spread[best]) < STRAIGHT:
            return float(SLOPES[best]), offset
    return None, None


def expert_facts(run: Run) -> list[Fact]:
    """One for each kind of mixture whose experts are stacked."""

    def fact(name: str, index: int, module: torch.nn.Module) -> Fact | None:
        found = _examined(run, module, scored(run, index))
        if found is None:
            return None
        stem = native_path(run, index, module)
        return Fact(name=name, label="Stacked matrices of an expert", value=len(found.matrices),
                    measured=_measured(found, stem), statement=_said(found, stem))  # fmt: skip

    return of_each_kind(run, "expert_weights", fact)


def of_each_kind(run: Run, name: str, fact: Callable[[str, int, torch.nn.Module], Fact | None]) -> list[Fact]:
    """One fact for each kind of mixture, of the first of its mixtures that has one.

    Args:
        name: of the first such fact; further ones have their kind behind it.
        fact: of its name, a block, and the module that makes the block's mixture.
    """
    facts: dict[str, Fact] = {}
    for index, module in mixtures(run):
        kind = type(module).__name__
        found = None if kind in facts else fact(f"{name}_{kind}" if facts else name, index, module)
        if found is not None:
            facts[kind] = found
    return [*facts.values()]


def mixtures(run: Run) -> Iterator[tuple[int, torch.nn.Module]]:
    """The modules that make the blocks' mixtures, each with its block."""
    for index, (envoy, anatomy) in enumerate(zip(run.text.envoys, run.text.anatomy, strict=True)):
        for term in anatomy.terms:
            if term.kind == "moe":
                yield from ((index, envoy._module.get_submodule(host)) for host in term.hosts)


def scored(run: Run, index: int) -> int:
    """How many experts a block's router scores; 0 where it was not read."""
    logits = [held for key, held in run.readings.items() if key.block == index and key.name == "router_logits"]
    return int(logits[0].shape[-1]) if logits else 0


def _examined(run: Run, module: torch.nn.Module, count: int) -> Found | None:
    """What is seen with the first token that shows all, of a few."""
    best = None
    weight = next((p for p in module.parameters() if p.is_floating_point()), None)
    if weight is None:
        return None
    for seed in range(SEEDS):
        generator = torch.Generator().manual_seed(seed)
        token = torch.randn(1, 1, run.model.hidden_size, generator=generator).to(weight.device, weight.dtype)
        try:
            with plain_experts(run.model._module):
                found = examine(Mixture(module, token, count))
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
            return best
        if found is not None and (best is None or found.whole):
            best = found
        if found is None or found.whole:
            return best
    return best


def _measured(found: Found, stem: str) -> dict[str, Any]:
    """The matrices by which axis a token goes in, and what was seen of the fused one."""
    measured: dict[str, Any] = {}
    for key, first in (("input_first", True), ("output_first", False)):
        measured[key] = [f"{stem}.{matrix.name}" for matrix in found.matrices if matrix.input_first is first]
    gates = dict(zip(("gate", "times"), (f"{stem}.{name}" for name in found.gates or ()), strict=False))
    seen = {"order": found.order, "slope": found.slope, "offset": found.offset} | gates
    return measured | {key: value for key, value in seen.items() if value is not None}


def _said(found: Found, stem: str) -> str:
    ways = {
        True: "input × output (`x @ W`)",
        False: "output × input, as a linear layer's weight (`x @ W.T`)",
    }
    said = []
    for first, axes in ways.items():
        names = [f"of `{stem}.{matrix.name}`" for matrix in found.matrices if matrix.input_first is first]
        if names:
            said.append(f"An expert's part {listed(names)} is {axes}.")
    if found.order is not None:
        said.append(f"In what `{found.fused}` gives, {SAYS[found.order]}.")
    if found.gates is not None:
        said.append("What `{}` gives are the gates, and what `{}` gives they multiply.".format(*found.gates))
    if found.slope is not None:
        slope = "" if found.slope == 1 else f"{found.slope:g} * "
        up = "up" if not found.offset else f"(up + {found.offset})"
        said.append(f"A neuron is `gate * sigmoid({slope}gate) * {up}`, any clamp aside.")
    return " ".join(said)
