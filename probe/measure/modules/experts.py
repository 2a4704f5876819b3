"""Stacked experts: the axis of a parameter that experts lie on, told by which of them a token's gradient reaches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch

from ...experiments.rows import removed
from ..run import Run
from ..trace import Key
from .layout import EXPERTS, Layout
from .layout import Run as Part
from .weights import Held, in_block

TOKENS = 4
"""So many tokens are looked at; their experts differ."""

Call = tuple[tuple[Any, ...], dict[str, Any]]


def experts(run: Run) -> list[Held]:
    """The parameters that hold all of a block's experts in one tensor, block after block."""
    chosen = {key.block: held for key, held in run.readings.items() if _is_choice(run, key)}
    calls: dict[tuple[int, str], Call] = {}
    with ExitStack() as stack, torch.no_grad():
        for index, path, module in _stacks(run, chosen):
            hook = module.register_forward_pre_hook(_keep(calls, (index, path)), with_kwargs=True)
            stack.enter_context(removed(hook))
        run.model._module(**run.inputs, use_cache=False)
    paths = {id(module): path for path, module in run.model._module.named_modules()}
    found = []
    for (index, path), call in calls.items():
        module = run.text.envoys[index]._module.get_submodule(path)
        above = in_block(paths[id(module)], paths[id(run.text.envoys[index]._module)])
        for name, axis in _axes(module, call, chosen[index].flatten(0, -2)).items():
            shape = tuple(module.get_parameter(name).shape)
            layout = Layout(1, (Part(EXPERTS, shape[axis], 1),))
            said = "A token's gradient on it is zero but at the experts that the token was sent to."
            parts = ((EXPERTS, layout.subscript(EXPERTS, axis)),)
            found.append(Held(index, f"{above}.{name}", shape, (EXPERTS,), axis, layout, parts, said))
    return found


def _is_choice(run: Run, key: Key) -> bool:
    return key.name == "expert_indices" and key.block is not None and key.host.startswith(run.text.label)


def _stacks(run: Run, chosen: dict[int | None, Any]) -> Iterator[tuple[int, str, torch.nn.Module]]:
    """The modules of the mixtures' blocks that own a parameter of three axes or more."""
    for index, envoy in enumerate(run.text.envoys):
        if index in chosen:
            for path, module in envoy._module.named_modules():
                if any(p.ndim >= 3 and p.is_floating_point() for p in module.parameters(recurse=False)):
                    yield index, path, module


def _keep(calls: dict[tuple[int, str], Call], place: tuple[int, str]) -> Any:
    def hook(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls.setdefault(place, (args, kwargs))

    return hook


def _axes(module: torch.nn.Module, call: Call, chosen: torch.Tensor) -> dict[str, int]:
    """Parameter -> the axis on which a token's gradient is at its experts alone; ``chosen``: ``[tokens, top_k]``."""
    stacked = {name: p for name, p in module.named_parameters(recurse=False) if p.ndim >= 3}
    frozen = [p for p in stacked.values() if not p.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_(True)
    try:
        with torch.enable_grad():
            out = module(*call[0], **call[1])
            rows = out.reshape(len(chosen), -1) if isinstance(out, torch.Tensor) else None
        if rows is None or not rows.requires_grad:
            return {}
        fits = {name: set(range(p.ndim)) for name, p in stacked.items()}
        for token in range(0, len(chosen), max(1, len(chosen) // TOKENS)):
            taken = sorted(set(chosen[token].tolist()))
            total = (rows[token] * torch.linspace(1, 2, rows.shape[1], device=rows.device)).sum()
            reached = torch.autograd.grad(total, list(stacked.values()), retain_graph=True, allow_unused=True)
            for name, gradient in zip(stacked, reached, strict=True):
                fits[name] = {axis for axis in fits[name] if gradient is not None and _at(gradient, axis) == taken}
    except (RuntimeError, TypeError, ValueError):
        return {}
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)
    return {name: axes.pop() for name, axes in fits.items() if len(axes) == 1}


def _at(gradient: torch.Tensor, axis: int) -> list[int]:
    others = [place for place in range(gradient.ndim) if place != axis]
    found: list[int] = (gradient != 0).any(others).nonzero().flatten().tolist()
    return found
