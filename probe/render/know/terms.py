"""The terms of a block's sum: which value each is, what gives it, and what multiplies it on its way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from probe.render.know.subject import BLOCK, Subject, modules
from probe.render.trunk import shared
from probe.schema import Shape, Sublayer, Value

Place = Literal["own", "norm", "child", "beside", "inside"]


@dataclass(frozen=True)
class Term:
    """One contribution and where it is made.

    Attributes:
        blocks: the blocks that add it from this place.
        place: the module's own return, the norm after it, a module inside it, another module beside it, or an
            operation of a forward.
        module: native path of the sublayer's module; None where it cannot be told.
        giver: native path of what gives the term, where that is a module.
        factors: what multiplies this term, alone or with others of its block.
    """

    sublayer: Sublayer
    value: Value
    blocks: tuple[int, ...]
    place: Place
    module: str | None
    giver: str | None
    factors: tuple[str, ...]


def host_of(sublayer: Sublayer) -> str:
    return f"{BLOCK}.{sublayer.host}" if sublayer.host else BLOCK


def terms(subject: Subject) -> list[Term]:
    """Every contribution once a place, in the order of the blocks' sums."""
    found: dict[tuple[str, str, Place, str | None, tuple[str, ...]], Term] = {}
    for shape, blocks in subject.shapes():
        for sublayer in shape.sublayers:
            value = subject.value(host_of(sublayer), sublayer.contribution, sublayer.module)
            if value is None or value.location is None or value.hf is None:
                continue
            term = _term(subject, shape, sublayer, value, blocks)
            key = (value.host, value.name, term.place, term.giver, term.factors)
            if key in found:
                term = Term(**vars(found[key]) | {"blocks": tuple(sorted({*found[key].blocks, *blocks}))})
            found[key] = term
    return list(found.values())


def _term(subject: Subject, shape: Shape, sublayer: Sublayer, value: Value, blocks: list[int]) -> Term:
    module = subject.native(value.host) if sublayer.host else None
    place, giver = _place(subject, sublayer, value, module)
    factors = tuple(factor.name for factor in shape.factors_of(sublayer)) or tuple(shared(shape, sublayer))
    return Term(sublayer, value, tuple(blocks), place, module, giver, factors)


def _place(subject: Subject, sublayer: Sublayer, value: Value, module: str | None) -> tuple[Place, str | None]:
    assert value.location is not None and value.hf is not None
    if sublayer.post_norm:
        norm = f"{subject.block_path}.{sublayer.post_norm}" if subject.block_path else None
        return ("own", value.hf.path) if norm and norm == module else ("norm", norm)
    if value.hf.side == "op":
        return "inside", value.hf.path
    steps = modules(value.location)
    if not steps:
        return "own", value.hf.path
    if steps[0] != "parent":
        return "child" if sublayer.host else "own", value.hf.path
    if _is_norm_of_another(subject, value, steps[-1]):
        return "own", module
    return "beside", value.hf.path


def _is_norm_of_another(subject: Subject, value: Value, name: str) -> bool:
    """Whether the row's place is the norm that follows the sublayer on other blocks; here it is the module itself."""
    return any(
        sub.post_norm == name and host_of(sub) == value.host
        for shape in subject.record.shapes
        for sub in shape.sublayers
    )
