"""The role of every part: what colours the diagram, the tables and the printout alike."""

from __future__ import annotations

import re
from collections.abc import Sequence

from probe.schema import Record, Shape, Value, Vision

KINDS = {"attention": "attention", "mixer": "attention", "mlp": "mlp", "moe": "mixture", "branch": "mark"}
MIXTURE = re.compile(r"^(router|routed|expert|shared_expert)")
NORM = re.compile(r"norm")
LEGEND = {
    "stream": "residual stream",
    "norm": "norm",
    "attention": "attention",
    "mlp": "MLP",
    "mixture": "mixture of experts",
    "vision": "vision",
    "mark": "this family’s own",
}


_INDEX = re.compile(r"\[[^\]]*\]")


def value_role(value: Value, shapes: Sequence[Shape]) -> str:
    """The role of a value, from where its host stands in the blocks' sublayers. ``shapes``: of the blocks meant."""
    vision = value.host.startswith("model.vision")
    if MIXTURE.match(value.name):
        return "mixture"
    for shape in shapes:
        for sub in shape.sublayers:
            at_home = _is_host(value.host, sub.host)
            if value.name == sub.contribution and at_home:
                return KINDS[sub.kind]
    if _in_block(value.host):
        for shape in shapes:
            for sub in shape.sublayers:
                if sub.host and _is_host(value.host, sub.host):
                    return KINDS["mlp" if sub.kind == "moe" else sub.kind]
    if NORM.search(value.name):
        return "norm"
    return "vision" if vision else "stream"


def row_role(value: Value, part: Record | Vision) -> str:
    """The role of a value of a record, as the drawings of the blocks that have it colour it."""
    return value_role(value, shapes_of(part, value.blocks))


def term_role(term: str, part: Record | Vision, blocks: Sequence[int] | None) -> str:
    """The role of what an equation names, such as ``mlp.mlp_output``; ``plain`` for what is no value or factor.

    Args:
        part: the record, or its vision encoder.
        blocks: those that the equation was evaluated on; None for the whole model.
    """
    shapes = shapes_of(part, blocks)
    named = _INDEX.sub("", term).split(".")
    if named[-2:] == ["layers", "input"]:
        return "vision" if "vision" in named else "stream"
    for at, name in reversed([*enumerate(named)]):
        if any(factor.name == name for shape in shapes for factor in shape.factors):
            return "mark"
        found = [value for value in part.values if value.name == name]
        if found:
            return value_role(min(found, key=lambda value: _far(value, named[:at], blocks)), shapes)
    return "plain"


def _far(value: Value, path: Sequence[str], blocks: Sequence[int] | None) -> tuple[bool, bool]:
    """How badly a value fits a term that names it by this path, on these blocks: the least is the best."""
    elsewhere = blocks is not None and value.blocks is not None and set(value.blocks).isdisjoint(blocks)
    return not _INDEX.sub("", value.host).endswith(".".join(path)), elsewhere


def shapes_of(part: Record | Vision, blocks: Sequence[int] | None) -> list[Shape]:
    """The shapes of some of a part's blocks, of all of them where none is named."""
    wanted = range(len(part.blocks)) if not blocks else blocks
    return [part.shapes[index] for index in dict.fromkeys(part.blocks[block] for block in wanted)]


def _in_block(host: str) -> bool:
    return "layers[i]." in host


def _is_host(host: str, child: str) -> bool:
    """Whether ``host`` is the block's ``child`` or inside it; the block itself for an empty ``child``."""
    _, _, below = host.partition("layers[i]")
    return below == "" if not child else below == f".{child}" or below.startswith(f".{child}.")
