"""Stacked experts: the axis of a parameter that experts lie on, told by which of them a token's gradient reaches.

What a block adds to a token depends on the experts that the token was sent to, and on no other. So in one forward the
places that a token's gradient reaches are compared with the choice that the run read. Where positions are mixed behind
the experts, only what the mixture itself returns depends so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import torch

from ...instruments.learning import learning
from ...instruments.rows import hooks, removed
from ...measure.native import in_block
from ...measure.run import Run
from .layout import EXPERTS, Layout
from .layout import Run as Part
from .weights import Held

TOKENS = 4
"""So many tokens are looked at; their experts differ."""

Touched = list[tuple[torch.Tensor, list[int]]]
"""For each token looked at, where its gradient on a parameter is not zero, and the token's experts."""


def experts(run: Run) -> list[Held]:
    """The parameters that hold all of a block's experts in one tensor, block after block."""
    chosen = _read(run, "expert_indices")
    logits = _read(run, "router_logits")
    modules = {index: run.text.envoys[index]._module for index in chosen}
    paths = {id(module): path for path, module in run.model._module.named_modules()}
    found = []
    with learning([parameter for module in modules.values() for parameter in _matrices(module).values()]):
        for index, outs in _outputs(run, modules).items():
            count = logits[index].shape[-1] if index in logits else 0
            taken = chosen[index].flatten(0, -2)
            each = (list(_held(index, modules[index], paths, out, taken, count)) for out in outs)
            found += next((held for held in each if held), [])
    return found


def _held(
    index: int,
    module: torch.nn.Module,
    paths: Mapping[int, str],
    out: torch.Tensor,
    chosen: torch.Tensor,
    count: int,
) -> Iterator[Held]:
    """The parameters of a block of which each token of ``out`` reaches its own experts' parts."""
    for name, touched in _reached(module, out, chosen).items():
        shape = tuple(module.get_parameter(name).shape)
        if (fit := _fit(touched, shape, count)) is None:
            continue
        axis, width = fit
        layout = Layout(1, (Part(EXPERTS, shape[axis] // width, width),))
        path = in_block(f"{paths[id(module)]}.{name}", paths[id(module)])
        said = "A token's gradient on it is zero but at the experts that the token was sent to."
        parts = ((EXPERTS, layout.subscript(EXPERTS, axis)),)
        yield Held(index, path, shape, (EXPERTS,), axis, layout, parts, said)


def _read(run: Run, name: str) -> dict[int, torch.Tensor]:
    """What the run read of a value of the text model's mixtures, by block."""
    return {
        key.block: held
        for key, held in run.readings.items()
        if key.name == name and key.block is not None and key.host.startswith(run.text.label)
    }


def _matrices(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    return {name: p for name, p in module.named_parameters() if p.ndim >= 2 and p.is_floating_point()}


def _outputs(run: Run, modules: Mapping[int, torch.nn.Module]) -> dict[int, list[torch.Tensor]]:
    """What each block returns, and what its mixture's modules do, ``[tokens, …]``, each with the graph behind it as far
    as the block goes; nothing where no gradient runs through the model.
    """
    outs: dict[torch.nn.Module, torch.Tensor] = {}

    def keep(module: torch.nn.Module, _: Any, out: Any) -> None:
        first = out if isinstance(out, torch.Tensor) else out[0]
        outs.setdefault(module, first.flatten(0, 1) if first.ndim > 2 else first)

    every = {index: [module, *_mixtures(run, index, module)] for index, module in modules.items()}
    with ExitStack() as stack:
        for module in {module: None for each in every.values() for module in each}:
            stack.enter_context(removed(module.register_forward_hook(keep)))
        stack.enter_context(hooks([(envoy._module, torch.Tensor.detach) for envoy in run.text.envoys]))
        stack.enter_context(torch.enable_grad())
        try:
            if modules:
                run.model._module(**run.inputs, use_cache=False)
        except RuntimeError:
            return {}
    return {index: [outs[module] for module in each if module in outs] for index, each in every.items()}


def _mixtures(run: Run, index: int, block: torch.nn.Module) -> list[torch.nn.Module]:
    """The modules that make a block's mixtures, nearest the add first."""
    terms = [term for term in run.text.anatomy[index].terms if term.kind == "moe"]
    return [block.get_submodule(host) for term in terms for host in term.hosts]


def _reached(module: torch.nn.Module, out: torch.Tensor, chosen: torch.Tensor) -> dict[str, Touched]:
    """Where the gradients of some tokens on each matrix are not zero; ``chosen``: ``[tokens, top_k]``."""
    matrices = _matrices(module)
    found: dict[str, Touched] = {name: [] for name in matrices}
    if len(out) != len(chosen) or not out.requires_grad:
        return {}
    for token in range(0, len(chosen), max(1, len(chosen) // TOKENS)):
        row = out[token].flatten()
        total = (row * torch.linspace(1, 2, len(row), device=row.device, dtype=row.dtype)).sum()
        gradients = torch.autograd.grad(total, list(matrices.values()), retain_graph=True, allow_unused=True)
        for name, gradient in zip(matrices, gradients, strict=True):
            if gradient is not None:
                found[name].append((gradient != 0, sorted(set(chosen[token].tolist()))))
    return {name: touched for name, touched in found.items() if touched}


def _fit(touched: Touched, shape: tuple[int, ...], count: int) -> tuple[int, int] | None:
    """The axis on which every token reaches its experts alone, and each one's width on it; None where none fits.

    A matrix with a place an expert is the router's; experts that lie side by side in a matrix take several each. Some
    of those scored may have no weights, or none that matter; but an axis of one place tells nothing.

    Args:
        count: how many experts were scored.
    """
    fits = []
    for axis, length in enumerate(shape):
        width = 1 if len(shape) > 2 else length // count if count and length % count == 0 else 0
        if width > 1 or (width and len(shape) > 2):
            places = [_at(mask, axis) for mask, _ in touched]
            live = {place // width for reached in places for place in reached}
            own = [[expert for expert in taken if expert in live] for _, taken in touched]
            parts = [[expert * width + k for expert in taken for k in range(width)] for taken in own]
            if live and length > 1 and places == parts:
                fits.append((axis, width))
    return fits[0] if len(fits) == 1 else None


def _at(mask: torch.Tensor, axis: int) -> list[int]:
    others = [place for place in range(mask.ndim) if place != axis]
    found: list[int] = mask.any(others).nonzero().flatten().tolist()
    return found
