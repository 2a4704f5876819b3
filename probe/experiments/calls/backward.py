"""Which modules' returns a gradient of the logits arrives at, in one forward and backward of the run's own prompt."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from ...instruments.learning import learning
from ...instruments.tap import removed
from ...measure.listing import listed
from ...measure.native import of_any_block
from ...measure.run import Run
from ...schema import Fact
from ...wiring.operands import tensors

NAMED = 4
"""Most modules that the sentence names."""

Calls = dict[str, list[list[torch.Tensor]]]
"""Native path of a module -> for each of its calls the floating tensors that it returned."""


def gradient_facts(run: Run) -> list[Fact]:
    """One sentence: which modules, or that none is without a gradient."""
    made: Calls = {}
    logits = _forward(run, made)
    weights = torch.linspace(1, 2, logits.numel(), device=logits.device).cos()
    total = (logits.float().flatten() * weights).sum()
    reached: set[int] = set()
    if total.requires_grad:
        given = [each for calls in made.values() for call in calls for each in call if each.requires_grad]
        found = torch.autograd.grad(total, given, allow_unused=True)
        reached = {id(t) for t, g in zip(given, found, strict=True) if g is not None and bool(g.any())}
    by_kind: dict[str, list[bool]] = {}
    first: dict[str, list[bool]] = {}
    for path, calls in made.items():
        by_kind.setdefault(of_any_block(path), []).extend(any(id(each) in reached for each in call) for call in calls)
        first.setdefault(of_any_block(path), []).extend(id(call[0]) in reached for call in calls)
    never = _outermost([path for path, hits in by_kind.items() if not any(hits)])
    at_times = _outermost([path for path, hits in by_kind.items() if any(hits) and not all(hits)])
    at_times = [path for path in at_times if not any(_inside(path, other) for other in never)]
    beside = [path for path, hits in first.items() if any(by_kind[path]) and not any(hits)]
    named = {"never": never, "at_times": at_times, "never_first": beside}
    return [
        Fact(
            name="no_gradient",
            label="Modules without a gradient",
            value=sum(map(len, named.values())),
            unit="kinds of modules",
            measured={key: [*paths] for key, paths in named.items()} if any(named.values()) else {},
            statement=_said(never, at_times, beside),
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
        call = [each for _, each in tensors(output) if each.is_floating_point() and each.numel()]
        if call and (any(each.requires_grad for each in call) or any(True for _ in module.parameters())):
            made.setdefault(path, []).append(call)

    return keep


def _inside(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}.")


def _outermost(paths: list[str]) -> list[str]:
    """Without the modules that stand inside another of them."""
    return [path for path in paths if not any(path != other and _inside(path, other) for other in paths)]


def _said(never: list[str], at_times: list[str], beside: list[str]) -> str:
    parts = []
    if never:
        parts.append(f"No gradient of the logits arrives at what {_names(never)} {_give(never)}")
    if at_times:
        what = f"{_names(at_times)} {_give(at_times)}"
        parts.append(f"A gradient of the logits arrives on some blocks or calls only at what {what}")
    if beside:
        parts.append(
            f"No gradient of the logits arrives at the first tensor of what {_names(beside)} {_give(beside)}, though "
            "at others of it"
        )
    if not parts:
        return "A gradient of the logits arrives at what every module with parameters returns."
    return f"{'. '.join(parts)}. Attribution by gradients gives nothing where none arrives."


def _names(paths: list[str]) -> str:
    more = [f"{len(paths) - NAMED} other kinds of modules"] if len(paths) > NAMED + 1 else []
    return listed([*(f"`{path}`" for path in (paths[:NAMED] if more else paths)), *more])


def _give(paths: list[str]) -> str:
    return "return" if len(paths) > 1 else "returns"
