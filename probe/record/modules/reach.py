"""Which rows and columns of an attention's weights reach which head: told by gradients, in one forward.

The gradient of a head's queries on a parameter is zero outside the head's own part of it, whatever the parameter's
layout. So that each head is seen by itself, norms below an attention pass gradients straight through, and the batch
holds one row a head, in which the output of every other head is zero. So that an attention is seen by itself, the graph
begins at its input: the same weights may have run before, in an earlier pass or under another block. That input is made
small, so that no projection is seen only where it lies within a clip.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from nnsight.intervention.envoy import Envoy

from ...experiments.attention.traced import attention_value
from ...instruments.extra import SHORT, attentions, decoder, token_ids
from ...instruments.learning import learning
from ...instruments.rows import Change, Rows, hooks, removed
from ...instruments.tap import Tap
from ...measure.run import Run
from ...wiring.norms import is_norm

NAMES = ("attention_queries", "attention_keys", "attention_values", "attention_output")
GATE = "gate"
"""What reaches a head's output neither through the heads nor behind them."""

Reached = dict[str, list[torch.Tensor]]
"""Standard value -> for each head the entries of a parameter that reach it, as truth values in its shape."""


SMALL = 0.01
"""What an attention's input is multiplied by."""

Made = dict[str, torch.Tensor]
"""Queries, keys and values of a block ``[heads, seq, head_dim]``; and its attention's output ``[heads, seq, hidden]``,
of one head's output alone in each row.
"""


class Graph(Tap):
    """A tap that keeps the graph behind queries, keys and values, and cuts it at the heads' outputs. Of an attention
    that mixes several times in one forward, with other values each time, it keeps the heads of every time.
    """

    def __init__(self, envoys: Any, rows: int) -> None:
        super().__init__(envoys, heads=self._apart)
        self._count = rows
        self.made: list[Made] = [{} for _ in self.blocks]
        self._entered = False

    def _apart(self, heads: torch.Tensor) -> torch.Tensor:
        """In row ``h`` the output of head ``h`` alone, ``[rows, seq, heads, head_dim]``."""
        only = torch.eye(self._count, heads.shape[2], dtype=heads.dtype, device=heads.device)
        return heads.detach() * only[:, None, :, None]

    def _enter(self, index: int) -> Callable[..., None]:
        inside = super()._enter(index)

        def enter(*given: Any) -> None:
            inside(*given)
            self._entered = True

        return enter

    def _keep(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, heads: torch.Tensor) -> None:
        super()._keep(query, key, value, heads)
        held = self.made[self._inside or 0]
        for name, tensor in zip(NAMES, (query, key, value), strict=False):
            before = None if self._entered else held.get(name)
            again = before is not None and before.shape[1:] == tensor[0].shape[1:]
            held[name] = torch.cat([before, tensor[0]]) if before is not None and again else tensor[0]
        self._entered = False


def reached(run: Run) -> dict[int, dict[str, Reached]]:
    """For each block with an attention that was tapped: parameter's path below it -> what of it reaches which head.

    Raises RuntimeError where no gradient runs through the model.
    """
    every = attentions(run)
    modules = [attention._module for attention in every if attention is not None]
    found: dict[int, dict[str, Reached]] = {}
    with learning(parameter for module in modules for parameter in module.parameters()):
        before: set[int] = set()
        made = _attended(run, every, before)
        for index, attention in enumerate(every):
            if attention is not None and made[index]:
                found[index] = _by_parameter(attention._module, made[index], before)
    return found


def _attended(run: Run, every: list[Envoy | None], before: set[int]) -> list[Made]:
    """One forward with one row a head; what each block's attention made, with the graph behind it.

    Args:
        before: filled with the modules, by identity, that were given the same on every row: what stands beside the
            heads' outputs, not behind them.
    """
    counts = [attention_value(run, index, NAMES[0]) for index in range(len(run.text))]
    heads = max([2, run.model.num_heads or 0, *(held.shape[1] for held in counts if held is not None)])
    graph = Graph(every, heads)
    outs: dict[int, torch.Tensor] = {}
    present = [(index, attention._module) for index, attention in enumerate(every) if attention is not None]
    with ExitStack() as stack:
        for index, module in present:
            stack.enter_context(removed(module.register_forward_hook(_keep(outs, index))))
            for child in module.modules():
                if child is not module:
                    hook = _straight if _passes(child) else _beside(before)
                    stack.enter_context(removed(child.register_forward_hook(hook)))
        stack.enter_context(hooks([(module, _begin(Rows(heads))) for _, module in present], alike=True))
        stack.enter_context(graph)
        stack.enter_context(torch.enable_grad())
        ids = token_ids(run, SHORT, heads)
        decoder(run)(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)
    for index, made in enumerate(graph.made):
        mixed = graph.blocks[index].heads
        if mixed is not None and index in outs:
            made[NAMES[3]] = outs[index][: mixed.shape[2]]
    return graph.made


def _begin(rows: Rows) -> Change:
    """What an attention is given instead: the same on every row, small, and without a graph."""
    return lambda tensor: rows.align(tensor).detach() * SMALL


def _by_parameter(module: torch.nn.Module, made: Made, before: set[int]) -> dict[str, Reached]:
    parameters = {path: p for path, p in module.named_parameters() if p.ndim >= 2 and p.is_floating_point()}
    found: dict[str, Reached] = {path: {} for path in parameters}
    for name, heads in made.items():
        if not heads.requires_grad:
            continue
        weights = torch.linspace(1.0, 2.0, heads[0].numel(), device=heads.device, dtype=heads.dtype).view_as(heads[0])
        for head in heads:
            total = (head * weights).sum()
            gradients = torch.autograd.grad(total, list(parameters.values()), retain_graph=True, allow_unused=True)
            for path, gradient in zip(parameters, gradients, strict=True):
                if gradient is not None:
                    beside = id(module.get_submodule(path.rpartition(".")[0])) in before
                    kind = GATE if name == NAMES[3] and beside else name
                    found[path].setdefault(kind, []).append(gradient != 0)
    return found


def _passes(module: torch.nn.Module) -> bool:
    """Whether a module is a norm, over whatever width its gain has."""
    widths = {p.shape[-1] for p in module.parameters(recurse=False) if p.ndim} or {8}
    return not list(module.children()) and any(is_norm(module, width) for width in widths)


def _beside(before: set[int]) -> Any:
    def hook(module: torch.nn.Module, args: tuple[Any, ...], _: Any) -> None:
        given = args[0].detach() if args and isinstance(args[0], torch.Tensor) else None
        if given is not None and torch.equal(given, given[:1].expand_as(given)):
            before.add(id(module))

    return hook


def _straight(_: torch.nn.Module, args: tuple[Any, ...], out: Any) -> Any:
    """The same numbers, with the gradient of an identity."""
    given = args[0] if args else None
    if not isinstance(out, torch.Tensor) or not isinstance(given, torch.Tensor) or out.shape != given.shape:
        return None
    return out.detach() + (given - given.detach()).to(out.dtype)


def _keep(store: dict[int, torch.Tensor], index: int) -> Any:
    def hook(_: torch.nn.Module, __: Any, out: Any) -> None:
        store[index] = out if isinstance(out, torch.Tensor) else out[0]

    return hook
