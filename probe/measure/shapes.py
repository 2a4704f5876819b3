"""The shapes of a stack's blocks: which blocks are wired alike and are of one size."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import torch

from ..recurrences import RECURRENCES
from ..schema import Factor, Feeder, Shape, Sublayer
from ..standard.stack import Contribution, Stack
from ..standard.trace import Key
from .identities import expression
from .run import Run

SAYS_LESS = ("linear_attention", "mixer")
"""Layer types that a measured recurrence says more than."""

SIZES = ("num_heads", "num_kv_heads", "head_dim", "qk_head_dim", "intermediate_size", "num_experts", "top_k")


def shapes(run: Run, stack: Stack, layer_types: Sequence[str]) -> tuple[list[Shape], list[int]]:
    """The distinct shapes, in order of appearance, and for each block the index of its shape."""
    lenders = borrowed_from(run, stack)
    any_borrowed = any(lender is not None for lender in lenders)
    found: list[Shape] = []
    index_of: list[int] = []
    for index in range(len(stack)):
        lends = None if not any_borrowed else "own" if lenders[index] is None else "borrowed"
        shape = _shape(stack, index, layer_types[index], lends)
        if shape not in found:
            found.append(shape)
        index_of.append(found.index(shape))
    return found, index_of


def _shape(stack: Stack, index: int, layer_type: str, lends: str | None) -> Shape:
    anatomy = stack.anatomy[index]
    contributions = stack.contributions[index]
    sublayers = [
        _sublayer(stack, index, contribution, following is not None and contribution.term.reads is following.term.reads)
        for contribution, following in zip_longest(contributions, contributions[1:])
    ]
    factors = [Factor(name=f.name, kind=_kind(f.kind), applies_to="sum") for f in anatomy.factors]
    names = [contribution.name for contribution in contributions]
    for contribution in contributions:
        name = contribution.name
        if names.count(name) > 1 and contribution.host:
            name = f"{contribution.host}.{name}"
        factors += [
            Factor(name=f.name, kind=_kind(f.kind), applies_to="contribution", contribution=name)
            for f in contribution.term.factors
        ]
    kinds = {sublayer.kind for sublayer in sublayers}
    label = _mixing(sublayers, layer_type)
    if "moe" in kinds:
        label.append("mixture")
    if lends == "borrowed":
        label.append("borrowed keys and values")
    return Shape(
        label=" · ".join(label),
        layer_type=layer_type,
        topology=anatomy.topology,
        sublayers=sublayers,
        factors=factors,
        identity=expression(stack, index),
        module=type(stack.envoys[index]._module).__name__,
        sizes=block_sizes(stack.envoys[index]),
        lends=lends,
    )


def _mixing(sublayers: Sequence[Sublayer], layer_type: str) -> list[str]:
    """How a block mixes positions: by the recurrence that ran, else as transformers calls its type."""
    named = layer_type.replace("_", " ")
    found = next((sublayer.recurrence for sublayer in sublayers if sublayer.recurrence), None)
    if found is None or any(sublayer.kind == "attention" for sublayer in sublayers):
        return [named]
    return [RECURRENCES[found]] if layer_type in SAYS_LESS else [RECURRENCES[found], named]


def _sublayer(stack: Stack, index: int, contribution: Contribution, parallel: bool) -> Sublayer:
    envoy: Any = stack.envoys[index]
    for step in contribution.host.split(".") if contribution.host else ():
        envoy = getattr(envoy, step)
    term = contribution.term
    return Sublayer(
        host=contribution.host,
        kind=term.kind,
        module=type(envoy._module).__name__,
        recurrence=getattr(envoy, "recurrence", None) if term.kind == "mixer" else None,
        fed_by=[
            Feeder(path=path, module=type(stack.envoys[index]._module.get_submodule(path)).__name__)
            for path in term.fed_by(stack.anatomy[index].terms)
        ],
        pre_norm=term.pre_norm,
        post_norm=term.post_norm,
        contribution=contribution.name,
        parallel_with_next=parallel,
    )


def _kind(kind: str) -> Any:
    return "constant" if kind not in ("buffer", "parameter") else kind


def block_sizes(envoy: Any) -> dict[str, int]:
    """The sizes of one block, as its attention and its MLP or mixture have them."""
    found: dict[str, int] = {}
    mixtures = [child for child in envoy._children if getattr(child, "role", "") == "moe"]
    for host in (getattr(envoy, "self_attn", None), getattr(envoy, "mlp", None), *mixtures):
        for name in SIZES:
            if host is not None and isinstance(getattr(type(host), name, None), property):
                value = getattr(host, name)
                if value is not None:
                    found[name] = int(value)
    return found


def borrowed_from(run: Run, stack: Stack) -> list[int | None]:
    """For each block the earlier block whose keys and values it attends with, or None where they are its own.

    Two blocks share keys where the tensors are equal element by element; unequal inputs make that no accident.
    """
    found: list[int | None] = []
    host = stack.host("self_attn")
    for index in range(len(stack)):
        found.append(
            next(
                (earlier for earlier in range(index) if found[earlier] is None and _alike(run, host, earlier, index)),
                None,
            )
        )
    return found


def _alike(run: Run, host: str, earlier: int, index: int) -> bool:
    for name in ("attention_keys", "attention_values"):
        left, right = run.readings.get(Key(host, earlier, name)), run.readings.get(Key(host, index, name))
        if left is None or right is None or not torch.equal(left, right):
            return False
    return True
