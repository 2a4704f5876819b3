"""How stacked experts' weights are stored: which axis a token's numbers go in by, and where gates lie in a fused one.

A mixture is called with one token, and a sum of what it returns is differentiated. On an expert's matrix that gradient
is a product of two vectors: of what enters it, and of the gradient of what leaves it. The one is what its module was
called with where the matrix reads that; the other the gradient of what its module returned where it writes that; what
is left tells the neurons. So the axis of each is seen also where both have the same length. One output of a reading
matrix is then made smaller: a neuron that follows it along a straight line multiplies by it, any other is gated.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ..measure.operands import first_tensor
from ..measure.run import Run
from ..schema import Fact
from .halves import plain_experts
from .reweighted import called_with
from .tap import removed

ALIKE = 1e-4
"""How far two vectors may be apart, relative to the second, to point the same way."""

STRAIGHT = 1e-3
"""How far a neuron may be from a straight line, relative to its change, to follow it."""

SEEDS = 4
"""Tokens tried until each output that is looked at moves a neuron: some activations give nothing for half of all."""

SLOPES = torch.arange(500, 3001, dtype=torch.float64) / 1000
"""Slopes that are tried for a gate's sigmoid."""

Side = Literal["reads", "writes"]
Order = Literal["halves, gates first", "halves, gates last", "gates on even places", "gates on odd places"]

SAYS: dict[Order, str] = {
    "halves, gates first": "the first half are the gates, the second half what they multiply",
    "halves, gates last": "the second half are the gates, the first half what they multiply",
    "gates on even places": "gates and what they multiply alternate, a gate first",
    "gates on odd places": "gates and what they multiply alternate, a gate second",
}


@dataclass(frozen=True)
class Matrix:
    """One expert's matrix.

    Attributes:
        name: of the parameter that holds all experts', from the mixture.
        side: whether it reads the token or writes the output.
        input_first: whether the axis of what enters it stands before that of what leaves it.
        inner: on a writing one, what enters it: the neurons times a factor that they share.
    """

    name: str
    side: Side
    input_first: bool
    inner: torch.Tensor


@dataclass(frozen=True)
class Found:
    """The matrices of one mixture, the order and name of the fused one, and its gates' form if that has a sigmoid."""

    matrices: tuple[Matrix, ...]
    order: Order | None
    fused: str | None
    slope: float | None
    offset: int | None


class Mixture:
    """One mixture, called with one token.

    Attributes:
        stacks: the parameters that hold a matrix for each of several experts.
        expert: one that the token was sent to.
        entering: for each stack what its own module was called with: the row with the largest numbers.
    """

    def __init__(self, module: torch.nn.Module, token: torch.Tensor) -> None:
        self.module = module
        self.token = token
        self.given = _given(module, token)
        self.expert = 0
        self.entering: dict[str, torch.Tensor] = {}
        self.stacks = {
            name: p for name, p in module.named_parameters() if p.ndim == 3 and p.shape[0] > 1 and p.is_floating_point()
        }

    def matrices(self, changed: Mapping[str, torch.Tensor] | None = None) -> dict[str, Matrix]:
        """The matrices of an expert that the token is sent to; none where they cannot be told."""
        leaves = {name: p.detach().clone().requires_grad_() for name, p in {**self.stacks, **(changed or {})}.items()}
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
            self.expert = int(gradient.flatten(1).abs().amax(1).gt(0).nonzero()[0])
            matrix = _matrix(name, gradient[self.expert], self.entering[name], _largest(leaving))
            if matrix is not None:
                found[name] = matrix
        return found

    def enters_as_it_is(self, name: str) -> bool:
        """Whether the module that owns a matrix is called with the token itself, and not with a multiple of it."""
        entering = self.entering[name]
        return entering.shape == self.token.flatten().shape and bool((entering == self.token.flatten()).all())


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
        entering = next((t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor)), None)
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


def examine(mixture: Mixture) -> Found | None:
    """The matrices of a mixture and the order of a fused one; None where no stacked matrix is seen."""
    found = mixture.matrices()
    reading = [matrix for matrix in found.values() if matrix.side == "reads"]
    writing = [matrix for matrix in found.values() if matrix.side == "writes"]
    if not reading and not writing:
        return None
    order, slope, offset = None, None, None
    fused = [(one, two) for one in reading for two in writing if _pair(one, two)]
    if len(fused) == 1:
        order = _order(mixture, *fused[0])
        if order is not None and mixture.enters_as_it_is(fused[0][0].name):
            slope, offset = _gate(mixture, *fused[0], order)
    return Found((*reading, *writing), order, fused[0][0].name if order else None, slope, offset)


def _pair(reading: Matrix, writing: Matrix) -> bool:
    """Whether a matrix gives two numbers for each that enters the other, which stands beside it."""
    stems = [name.removesuffix(".weight").rpartition(".")[0] for name in (reading.name, writing.name)]
    return stems[0] == stems[1] and len(reading.inner) == 2 * len(writing.inner)


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


def _gate(mixture: Mixture, reading: Matrix, writing: Matrix, order: Order) -> tuple[float | None, int | None]:
    """The slope s and the offset o of neurons ``gate * sigmoid(s * gate) * (up + o)``; None where they are no such
    product.
    """
    stack = mixture.stacks[reading.name].detach()[mixture.expert]
    given = mixture.token.flatten() @ stack if reading.input_first else stack @ mixture.token.flatten()
    bias = [p for n, p in mixture.module.named_parameters() if n.startswith(reading.name) and n != reading.name]
    if bias and bias[0].shape == (mixture.stacks[reading.name].shape[0], len(given)):
        given = given + bias[0].detach()[mixture.expert]
    given, inner = given.double(), writing.inner.double()
    first, second = given.chunk(2) if order.startswith("halves") else (given[::2], given[1::2])
    gate, up = (first, second) if order in ("halves, gates first", "gates on even places") else (second, first)
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
    paths = {id(module): path for path, module in run.model._module.named_modules()}
    facts: dict[str, Fact] = {}
    for index, module in _mixtures(run):
        kind = type(module).__name__
        if kind in facts:
            continue
        found = _examined(run, module)
        if found is None:
            continue
        block = paths[id(run.text.envoys[index]._module)]
        stem = f"{block.rpartition('.')[0]}.{{i}}{paths[id(module)].removeprefix(block)}"
        name = "expert_weights" if not facts else f"expert_weights_{kind}"
        facts[kind] = Fact(name=name, label="Stacked matrices of an expert", value=len(found.matrices),
                           statement=_said(found, stem))  # fmt: skip
    return [*facts.values()]


def _mixtures(run: Run) -> Iterator[tuple[int, torch.nn.Module]]:
    for index, (envoy, anatomy) in enumerate(zip(run.text.envoys, run.text.anatomy, strict=True)):
        for term in anatomy.terms:
            if term.kind == "moe":
                yield from ((index, envoy._module.get_submodule(host)) for host in term.hosts)


def _examined(run: Run, module: torch.nn.Module) -> Found | None:
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
                found = examine(Mixture(module, token))
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
            return best
        if found is not None and (best is None or found.order is not None):
            best = found
        if found is None or found.order is not None:
            return best
    return best


def _said(found: Found, stem: str) -> str:
    ways = {
        True: "input × output (`x @ W`)",
        False: "output × input, as a linear layer's weight (`x @ W.T`)",
    }
    said = []
    for first, axes in ways.items():
        names = [f"`{stem}.{matrix.name}`" for matrix in found.matrices if matrix.input_first is first]
        if names:
            listed = " and of ".join([", of ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
            said.append(f"An expert's part of {listed} is {axes}.")
    if found.order is not None:
        said.append(f"Of what `{found.fused}` gives {SAYS[found.order]}.")
    if found.slope is not None:
        slope = "" if found.slope == 1 else f"{found.slope:g} * "
        up = "up" if not found.offset else f"(up + {found.offset})"
        said.append(f"A neuron is `gate * sigmoid({slope}gate) * {up}`, short of any bound.")
    return " ".join(said)
