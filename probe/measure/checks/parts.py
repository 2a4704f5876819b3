"""What the checks over a block share: its sublayers by kind, its norms, and what its linear layers give."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ...standard.stack import Stack
from ...wiring.anatomy import Term
from ...wiring.norms import is_norm
from ..identities import Block

HIDDEN = 1e30
"""Scores below minus this are masked."""

MASKED = 9e3
"""Scores below minus this are masked where a class masks by adding a large number instead."""


def hosts(stack: Stack, *kinds: str) -> list[str]:
    """The hosts of the sublayers of these kinds, in order of appearance."""
    found = [c.host for block in stack.contributions for c in block if c.term.kind in kinds]
    return list(dict.fromkeys(found))


def term(block: Block, host: str, *kinds: str) -> Term | None:
    """What a block's sublayer at ``host`` adds, as derived; None where it has none of these kinds there."""
    for contribution in block.stack.contributions[block.index]:
        if contribution.host == host and contribution.term.kind in kinds:
            return contribution.term
    return None


def first(block: Block, *kinds: str) -> Term | None:
    """The first term of these kinds."""
    return next((t for t in block.stack.anatomy[block.index].terms if t.kind in kinds), None)


def through(norm: str | None, inner: str) -> str:
    return inner if norm is None else f"{norm}({inner})"


def named(name: str, host: str) -> str:
    """A check's name, with the host where it is not the standard one."""
    return name if host in ("self_attn", "linear_attn", "mlp") else f"{name} in {host}"


def linear_outputs(block: Block, host: str, value: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """What each linear layer of a module gives for a value, by its standard name; wide ones also in their halves."""
    envoy = block.envoy(host)
    if envoy is None:
        return
    named_by = {id(getattr(envoy, alias)): alias for alias in envoy._aliases}
    for name, child in envoy._named_children():
        module = child._module
        weight = getattr(getattr(module, "linear", module), "weight", None)
        if not isinstance(weight, torch.Tensor) or weight.ndim != 2 or value.shape[-1] not in weight.shape:
            continue
        try:
            out = block.apply(module, value)
        except RuntimeError:
            continue
        name = named_by.get(id(child), name)
        yield name, out
        if out.shape[-1] % 2 == 0:
            left, right = out.chunk(2, -1)
            yield f"{name}[first half]", left
            yield f"{name}[second half]", right


def inner_norms(block: Block, host: str, width: int) -> Iterator[tuple[str, torch.nn.Module]]:
    """The norms of that width among a host's own children, by name."""
    envoy = block.envoy(host)
    if envoy is not None:
        for name, child in envoy._named_children():
            if is_norm(child._module, width):
                yield name, child._module


def known_numbers(module: torch.nn.Module) -> list[float]:
    """The numbers other than 1 that a block's config holds: the factors that its forward may multiply by."""
    config = next((m.config for m in module.modules() if hasattr(m, "config")), None)
    found: list[float] = []
    for value in config.to_dict().values() if config is not None else ():
        items = value if isinstance(value, (list, tuple)) else [value]
        found += [item for item in items if isinstance(item, float) and item not in (0.0, 1.0)]
    return list(dict.fromkeys(found))


def called(name: str, argument: str) -> str:
    """``up_proj(mlp_input)``, or ``up_proj(mlp_input)[first half]`` for a half of it."""
    base, bracket, half = name.partition("[")
    return f"{base}({argument}){bracket}{half}"
