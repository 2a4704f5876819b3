"""Which modules' returns a gradient of the logits arrives at, in one forward and backward of the run's own prompt."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from ..instruments.learning import learning
from ..instruments.tap import removed
from ..measure.listing import listed
from ..measure.run import Run
from ..schema import Fact
from ..wiring.operands import first_tensor

NAMED = 4
"""Most modules that the sentence names."""

Calls = dict[str, list[torch.Tensor]]
"""Native path of a module -> the first tensor of each of its returns."""


def gradient_facts(run: Run) -> list[Fact]:
    """One sentence; nothing where no gradient can be taken of the logits."""
    made: Calls = {}
    try:
        logits = _forward(run, made)
        weights = torch.linspace(1, 2, logits.numel(), device=logits.device).cos()
        tensors = [tensor for calls in made.values() for tensor in calls if tensor.requires_grad]
        total = (logits.float().flatten() * weights).sum()
        found = torch.autograd.grad(total, tensors, allow_unused=True) if total.requires_grad else ()
    except (RuntimeError, NotImplementedError):
        return []
    if not found:
        return []
    reached = {id(t) for t, g in zip(tensors, found, strict=True) if g is not None and bool(g.any())}
    by_kind: dict[str, list[bool]] = {}
    for path, calls in made.items():
        by_kind.setdefault(_general(path), []).extend(id(tensor) in reached for tensor in calls)
    never = _outermost([path for path, hits in by_kind.items() if not any(hits)])
    at_times = _outermost([path for path, hits in by_kind.items() if any(hits) and not all(hits)])
    at_times = [path for path in at_times if not any(_inside(path, other) for other in never)]
    return [
        Fact(
            name="no_gradient",
            label="Modules without a gradient",
            value=len(never) + len(at_times),
            unit="kinds of modules",
            measured={"never": [*never], "at_times": [*at_times]} if never or at_times else {},
            statement=_said(never, at_times),
        )
    ]


def _forward(run: Run, made: Calls) -> torch.Tensor:
    """The logits with the graph behind them. A module without parameters whose return has no graph is left out: it
    makes angles of positions, or stands inside one that is told.
    """
    module = run.model._module
    with ExitStack() as stack:
        stack.enter_context(learning(module.parameters()))
        for path, part in module.named_modules():
            if path:
                stack.enter_context(removed(part.register_forward_hook(_keeping(made, path))))
        with torch.enable_grad():
            logits: torch.Tensor = module(**run.inputs, use_cache=False).logits
    return logits


def _keeping(made: Calls, path: str) -> Callable[..., None]:
    def keep(module: torch.nn.Module, _: Any, output: Any) -> None:
        tensor = first_tensor(output)
        if tensor is None or not tensor.is_floating_point() or not tensor.numel():
            return
        if tensor.requires_grad or any(True for _ in module.parameters()):
            made.setdefault(path, []).append(tensor)

    return keep


def _general(path: str) -> str:
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "{i}", path)


def _inside(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}.")


def _outermost(paths: list[str]) -> list[str]:
    """Without the modules that stand inside another of them."""
    return [path for path in paths if not any(path != other and _inside(path, other) for other in paths)]


def _said(never: list[str], at_times: list[str]) -> str:
    if not never and not at_times:
        return "A gradient of the logits arrives at what every module returns."
    parts = []
    if never:
        parts.append(f"No gradient of the logits arrives at what {_names(never)} {_give(never)}")
    if at_times:
        one = "one" if never else "A gradient of the logits"
        parts.append(f"{one} arrives on some blocks or calls only at what {_names(at_times)} {_give(at_times)}")
    return f"{'; '.join(parts)}: without one, attribution by gradients gives nothing."


def _names(paths: list[str]) -> str:
    more = [f"{len(paths) - NAMED} other kinds of modules"] if len(paths) > NAMED + 1 else []
    return listed([*(f"`{path}`" for path in (paths[:NAMED] if more else paths)), *more])


def _give(paths: list[str]) -> str:
    return "return" if len(paths) > 1 else "returns"
