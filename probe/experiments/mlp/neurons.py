"""Which part of an MLP's matrices belongs to one neuron: its input weights, the gate's apart, and its output weights.

Told by gradients in one forward: a neuron's gradient on a matrix is zero but at its own part, and that of what the MLP
returns on the matrix after the neurons is a product of the two vectors. Where a norm or a threshold of all neurons
stands between, a neuron has no part of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch

from ...instruments.extra import SHORT, token_ids
from ...instruments.learning import learning
from ...instruments.tap import removed
from ...measure.listing import listed
from ...measure.native import in_block
from ...measure.run import Run
from ...schema import Fact
from ...standard.trace import Key
from ...wiring.operands import first_given, first_tensor
from ..base import some

CLOSE = 1e-4
"""How far two vectors may be apart, relative to the larger, to be one."""

ALONG = 0.999
"""Least cosine between the neurons and what is multiplied by their output weights: rounding to 8 bits keeps more."""

Told = tuple[str, bool]
"""A sentence on an MLP, and whether all of a neuron's input weights are its own."""


@dataclass(frozen=True)
class Mlp:
    """One block's MLP.

    Attributes:
        path: of the module whose contribution it is, natively, with `{i}`.
        module: that module.
        writer: the module that takes the neurons.
        name: of that module, from ``module``.
        block: its index.
    """

    block: int
    path: str
    module: torch.nn.Module
    writer: torch.nn.Module
    name: str


def neuron_facts(run: Run) -> list[Fact]:
    """A sentence for each way in which MLPs store their neurons, with its blocks where an MLP elsewhere has another;
    one that says so where none was found.
    """
    mlps = [*_mlps(run)]
    if not mlps:
        return []
    passed: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def keep(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        given, made = first_given(args, kwargs), first_tensor(output)
        if given is not None and made is not None and made.requires_grad:  # some are first called without a graph
            passed.setdefault(id(module), (given, made))

    with ExitStack() as stack, torch.enable_grad():
        stack.enter_context(learning(run.model._module.parameters()))
        for mlp in mlps:
            stack.enter_context(removed(mlp.writer.register_forward_hook(keep, with_kwargs=True)))
        run.model._module(input_ids=token_ids(run, SHORT), use_cache=False)
        found: dict[str, dict[Told, list[int]]] = {}
        for mlp in mlps:
            told = _said(mlp, *passed[id(mlp.writer)]) if id(mlp.writer) in passed else None
            if told is not None:
                found.setdefault(f"{mlp.path}.{mlp.name}", {}).setdefault(told, []).append(mlp.block)
    said, own = [], []
    for ways in found.values():
        for (sentence, whole), blocks in ways.items():
            own += blocks if whole else []
            among = f"On {some(blocks, len(run.text))}, {sentence[:1].lower()}{sentence[1:]}"
            said.append(sentence if len(ways) == 1 else among)
    if not said:
        paths = listed([f"`{path}`" for path in dict.fromkeys(f"{mlp.path}.{mlp.name}" for mlp in mlps)])
        none = f"No part of an MLP's matrices was found to be one neuron's, among those before {paths} or in its own."
        return [_fact(0, {}, [none])]
    differ = any(len(ways) > 1 for ways in found.values())
    measured: dict[str, Any] = {"blocks": sorted({*own})} if differ else {}
    return [_fact(len(said), measured, said)]


def _fact(kinds: int, measured: dict[str, Any], said: list[str]) -> Fact:
    return Fact(name="mlp_weights", label="An MLP's matrices by neuron", value=kinds, unit="kinds of MLPs",
                measured=measured, statement=" ".join(said))  # fmt: skip


def _mlps(run: Run) -> Iterator[Mlp]:
    """Every MLP whose neurons are what a module with a matrix is called with."""
    root = run.model._module
    paths = {id(module): path for path, module in root.named_modules()}
    hosts = [paths[id(e._module.get_submodule(host))] for e, a in zip(run.text.envoys, run.text.anatomy, strict=True)
             for term in a.terms if term.kind == "mlp" for host in term.hosts]  # fmt: skip
    for label, block, host in run.model.hosts():
        value = host.standard_values().get("mlp_neurons")
        if value is None or block is None or Key(label, block, "mlp_neurons") not in run.readings:
            continue
        path, side, _ = value.location.plain(host, run.model)
        within = paths[id(run.text.envoys[block]._module)]
        mine = max((each for each in [within, *hosts] if path.startswith(f"{each}.")), key=len, default=None)
        writer = root.get_submodule(path)
        if side == "in" and mine is not None and getattr(writer, "weight", None) is not None:
            above = in_block(mine, within)
            yield Mlp(block, above, root.get_submodule(mine), writer, path.removeprefix(f"{mine}."))


def _said(mlp: Mlp, neurons: torch.Tensor, made: torch.Tensor) -> Told | None:
    """What is told of one MLP; None where its matrices show no part for each neuron."""
    writes, (reads, shared) = _writes(mlp.writer, neurons, made), _reads(mlp, neurons)
    if writes is None or not (reads or shared):
        return None
    inner = _stem([*reads, *shared, mlp.name])
    of = " of N" if any("+ N" in each for each in reads) else ""
    path = f"{mlp.path}.{inner}".removesuffix(".")
    own = [f"`{name.removeprefix(inner)}`{gate}" for name, gate in reads.items()]
    parts = [f"the input weights {listed(own)}"] if own else []
    parts.append(f"the output weights `{mlp.name.removeprefix(inner)}.weight{writes}`")
    whole = [f"`{name.removeprefix(inner)}`" for name in shared]
    rest = f"; it depends on other neurons' parts of {listed(whole)} too" if whole else ""
    return f"Neuron n{of} in `{path}` has {', and '.join(parts)}{rest}.", not shared


def _stem(names: list[str]) -> str:
    """The modules, with a dot behind each, in which all the names stand."""
    parts = [name.split("[")[0].removesuffix(".weight").split(".")[:-1] for name in names]
    shared = [step[0] for step in takewhile(lambda step: len(set(step)) == 1, zip(*parts, strict=False))]
    return "".join(f"{step}." for step in shared)


def _writes(writer: torch.nn.Module, neurons: torch.Tensor, made: torch.Tensor) -> str | None:
    """The subscript of one neuron in the matrix after the neurons, found where its gradient is as they are; where the
    module rounds or scales the neurons, as they are but for that.
    """
    row, out = neurons.reshape(-1, neurons.shape[-1])[-1], made.reshape(-1, made.shape[-1])[-1]
    weight: torch.Tensor = writer.weight
    if weight.ndim != 2 or not out.requires_grad:
        return None
    aim = torch.linspace(1, 2, len(out), device=out.device, dtype=out.dtype).cos()
    [gradient] = torch.autograd.grad((out * aim).sum(), [weight], retain_graph=True, allow_unused=True)
    if gradient is None:
        return None
    for subscript, turned in (("[:, n]", gradient), ("[n]", gradient.T)):
        if turned.shape == (len(aim), len(row)):
            met = aim @ turned / (aim @ aim)  # what the output weights were multiplied by
            if _alike(turned, torch.outer(aim, met)) and _one_direction(met, row.detach()):
                return subscript
    return None


def _reads(mlp: Mlp, neurons: torch.Tensor) -> tuple[dict[str, str], list[str]]:
    """A neuron's input weights, with ` (the gate)` behind the one of two that goes through a curve, and the matrices
    of which it has no part of its own.
    """
    rows = neurons.reshape(-1, neurons.shape[-1])
    count = rows.shape[-1]
    matrices = {
        name: p
        for name, p in mlp.module.named_parameters()
        if p.ndim == 2 and p.is_floating_point() and not name.startswith(f"{mlp.name}.")
    }
    places: dict[str, list[tuple[int, list[int]]]] = {name: [] for name in matrices}
    curved: dict[str, list[bool]] = {}
    shared: dict[str, None] = {}
    active = rows.any(0).nonzero().flatten().tolist()  # of a neuron that stays at zero nothing is seen
    if len(active) < 3:
        return {}, []
    asked = [*active[:2], active[-1]]
    for neuron in asked:
        row = int(rows[:, neuron].abs().argmax())
        gradients = torch.autograd.grad(
            rows[row, neuron],
            [*matrices.values()],
            retain_graph=True,
            create_graph=neuron == asked[0],
            allow_unused=True,
        )
        for (name, matrix), gradient in zip(matrices.items(), gradients, strict=True):
            if gradient is None or not bool(gradient.any()):
                continue
            axis = _axis(gradient)
            if axis is None:
                if "{i}" != mlp.path.rpartition(".")[2]:  # a block has matrices of other sublayers
                    shared[name] = None
                continue
            at = gradient.abs().amax(1 - axis).nonzero().flatten().tolist()
            places[name].append((axis, at))
            if neuron == asked[0]:
                curved[name] = [_curved(gradient.select(axis, place), matrix, axis, place) for place in at]
    found: dict[str, str] = {}
    bent: list[bool] = []
    for name, seen in places.items():
        if name in shared:
            continue
        for index, subscript in enumerate(_subscripts(seen, asked, count)):
            found[f"{name}{subscript}"] = ""
            bent.append(curved[name][index])
    if len(found) == 2 and sorted(bent) == [False, True]:
        found[[*found][bent.index(True)]] = " (the gate)"
    return found, [*shared]


def _curved(gradient: torch.Tensor, matrix: torch.Tensor, axis: int, place: int) -> bool:
    """Whether a neuron's gradient on its part of a matrix changes with that part."""
    if not gradient.requires_grad:
        return False
    along = gradient @ matrix.select(axis, place).detach()
    [second] = torch.autograd.grad(along, [matrix], retain_graph=True, allow_unused=True)
    if second is None:
        return False
    change = float((second.select(axis, place) @ matrix.select(axis, place)).detach().abs())
    return change > CLOSE * float(along.detach().abs())


def _axis(gradient: torch.Tensor) -> int | None:
    """The axis on which a neuron has one place or two; None where it has more on both."""
    few = [axis for axis in (0, 1) if int(gradient.abs().amax(1 - axis).gt(0).sum()) <= 2]
    return few[0] if len(few) == 1 else None


def _subscripts(seen: list[tuple[int, list[int]]], asked: list[int], count: int) -> list[str]:
    """Where neuron n lies, from where three do; none where no rule gives it."""
    if len(seen) != 3 or len({axis for axis, _ in seen}) != 1:
        return []
    lists = [at for _, at in seen]
    rules = {"n": lambda n: n, f"n + {count}": lambda n: n + count, "2 * n": lambda n: 2 * n,
             "2 * n + 1": lambda n: 2 * n + 1}  # fmt: skip
    told = []
    for column in zip(*lists, strict=False):
        fits = [words for words, rule in rules.items() if [*column] == [rule(n) for n in asked]]
        told += fits[:1]
    if {len(at) for at in lists} != {len(told)}:
        return []
    words = [each.replace(f"n + {count}", "n + N") for each in told]
    return [f"[{each}]" if seen[0][0] == 0 else f"[:, {each}]" for each in words]


def _alike(left: torch.Tensor, right: torch.Tensor) -> bool:
    return float((left - right).abs().max()) <= CLOSE * float(right.abs().max())


def _one_direction(left: torch.Tensor, right: torch.Tensor) -> bool:
    return float(torch.nn.functional.cosine_similarity(left.float(), right.float(), dim=0)) >= ALONG
