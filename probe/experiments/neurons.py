"""Which part of an MLP's matrices belongs to one neuron: what it reads by, gate apart, and what it writes.

Told by gradients in one forward: a neuron's gradient on a matrix is zero but at its own part, and that of what the MLP
returns on the matrix after the neurons is a product of the two vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from ..instruments.extra import SHORT, token_ids
from ..instruments.learning import learning
from ..instruments.tap import removed
from ..measure.listing import listed
from ..measure.native import in_block
from ..measure.run import Run
from ..schema import Fact
from ..standard.trace import Key
from ..wiring.operands import first_given, first_tensor

CLOSE = 1e-4
"""How far two vectors may be apart, relative to the larger, to be one."""


@dataclass(frozen=True)
class Mlp:
    """One block's MLP.

    Attributes:
        path: of the module whose contribution it is, natively, with `{i}`.
        module: that module.
        writer: the module that takes the neurons.
        name: of that module, from ``module``.
    """

    path: str
    module: torch.nn.Module
    writer: torch.nn.Module
    name: str


def neuron_facts(run: Run) -> list[Fact]:
    """A sentence for each way in which MLPs store their neurons."""
    mlps = [*_mlps(run)]
    if not mlps:
        return []
    passed: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def keep(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        given, made = first_given(args, kwargs), first_tensor(output)
        if given is not None and made is not None:
            passed.setdefault(id(module), (given, made))

    try:
        with ExitStack() as stack, torch.enable_grad():
            stack.enter_context(learning(run.model._module.parameters()))
            for mlp in mlps:
                stack.enter_context(removed(mlp.writer.register_forward_hook(keep, with_kwargs=True)))
            run.model._module(input_ids=token_ids(run, SHORT), use_cache=False)
            said = dict.fromkeys(
                sentence
                for mlp in mlps
                if id(mlp.writer) in passed and (sentence := _said(mlp, *passed[id(mlp.writer)]))
            )
    except RuntimeError:
        return []
    if not said:
        return []
    return [Fact(name="mlp_weights", label="An MLP's matrices by neuron", value=len(said), unit="kinds of MLPs",
                 statement=" ".join(said))]  # fmt: skip


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
            yield Mlp(above, root.get_submodule(mine), writer, path.removeprefix(f"{mine}."))


def _said(mlp: Mlp, neurons: torch.Tensor, made: torch.Tensor) -> str | None:
    """The sentence on one MLP; None where its matrices show no part for each neuron."""
    writes, reads = _writes(mlp.writer, neurons, made), _reads(mlp, neurons)
    if writes is None or not reads:
        return None
    written = f"`{mlp.name}.weight{writes}`"
    of = " of N" if any("+ N" in each for each in reads) else ""
    return f"Neuron n{of} in `{mlp.path}` reads by {listed(reads)}, and writes {written}."


def _writes(writer: torch.nn.Module, neurons: torch.Tensor, made: torch.Tensor) -> str | None:
    """The subscript of one neuron in the matrix after the neurons, found where its gradient is as they are."""
    row, out = neurons.reshape(-1, neurons.shape[-1])[-1], made.reshape(-1, made.shape[-1])[-1]
    weight: torch.Tensor = writer.weight
    if weight.ndim != 2 or not out.requires_grad:
        return None
    aim = torch.linspace(1, 2, len(out), device=out.device, dtype=out.dtype).cos()
    [gradient] = torch.autograd.grad((out * aim).sum(), [weight], retain_graph=True, allow_unused=True)
    if gradient is None:
        return None
    for subscript, product in (("[:, n]", torch.outer(aim, row)), ("[n]", torch.outer(row, aim))):
        if product.shape == gradient.shape and _alike(gradient, product.detach()):
            return subscript
    return None


def _reads(mlp: Mlp, neurons: torch.Tensor) -> list[str]:
    """The parts by which a neuron reads; where it has two of which one goes through a curve, that is the gate."""
    rows = neurons.reshape(-1, neurons.shape[-1])
    count = rows.shape[-1]
    matrices = {
        name: p
        for name, p in mlp.module.named_parameters()
        if p.ndim == 2 and p.is_floating_point() and not name.startswith(f"{mlp.name}.")
    }
    places: dict[str, list[tuple[int, list[int]]]] = {name: [] for name in matrices}
    straight: dict[str, list[bool]] = {}
    for neuron in (0, 1, count - 1):
        row = int(rows[:, neuron].abs().argmax())
        gradients = torch.autograd.grad(rows[row, neuron], [*matrices.values()], retain_graph=True, allow_unused=True)
        for (name, matrix), gradient in zip(matrices.items(), gradients, strict=True):
            if gradient is None or not bool(gradient.any()):
                continue
            axis = _axis(gradient)
            if axis is None:
                if "{i}" == mlp.path.rpartition(".")[2]:  # the block, which has matrices of other sublayers
                    continue
                return []
            at = gradient.abs().amax(1 - axis).nonzero().flatten().tolist()
            places[name].append((axis, at))
            if neuron == 0:
                parts = [gradient.select(axis, place).flatten() @ matrix.select(axis, place) for place in at]
                straight[name] = [_near(float(part.detach()), float(rows[row, neuron].detach())) for part in parts]
    found: list[str] = []
    bent: list[bool] = []
    for name, seen in places.items():
        for index, subscript in enumerate(_subscripts(seen, count)):
            found.append(f"`{name}{subscript}`")
            bent.append(not straight[name][index])
    if len(found) == 2 and sorted(bent) == [False, True]:
        gate = bent.index(True)
        found[gate] += " (the gate)"
    return found


def _axis(gradient: torch.Tensor) -> int | None:
    """The axis on which a neuron has one place or two; None where it has more on both."""
    few = [axis for axis in (0, 1) if int(gradient.abs().amax(1 - axis).gt(0).sum()) <= 2]
    return few[0] if len(few) == 1 else None


def _subscripts(seen: list[tuple[int, list[int]]], count: int) -> list[str]:
    """Where neuron n lies, from where the first two and the last do; none where no rule gives it."""
    if len(seen) != 3 or len({axis for axis, _ in seen}) != 1:
        return []
    lists = [at for _, at in seen]
    rules = {"n": lambda n: n, f"n + {count}": lambda n: n + count, "2 * n": lambda n: 2 * n,
             "2 * n + 1": lambda n: 2 * n + 1}  # fmt: skip
    told = []
    for column in zip(*lists, strict=False):
        fits = [words for words, rule in rules.items() if [*column] == [rule(n) for n in (0, 1, count - 1)]]
        told += fits[:1]
    if {len(at) for at in lists} != {len(told)}:
        return []
    words = [each.replace(f"n + {count}", "n + N") for each in told]
    return [f"[{each}]" if seen[0][0] == 0 else f"[:, {each}]" for each in words]


def _near(left: float, right: float) -> bool:
    return abs(left - right) <= 1e-3 * max(abs(left), abs(right), 1e-30)


def _alike(left: torch.Tensor, right: torch.Tensor) -> bool:
    return float((left - right).abs().max()) <= CLOSE * float(right.abs().max())
