"""The role of every part: what colours the diagram, the tables and the printout alike."""

from __future__ import annotations

import re
from collections.abc import Sequence

from probe.schema import Shape, Value

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


def value_role(value: Value, shapes: Sequence[Shape]) -> str:
    """The role of a value, from where its host stands in the blocks' sublayers."""
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


def _in_block(host: str) -> bool:
    return "layers[i]." in host


def _is_host(host: str, child: str) -> bool:
    """Whether ``host`` is the block's ``child`` or inside it; the block itself for an empty ``child``."""
    _, _, below = host.partition("layers[i]")
    return below == "" if not child else below == f".{child}" or below.startswith(f".{child}.")
