"""What happens to the stream itself: factors on it and on what is added, norms of the sum, modules that hold the add.

The factors were derived with the block's sum (:mod:`probe.wiring.anatomy`); what a block does to its stream is seen by
changing the stream on its way in.
"""

from __future__ import annotations

import torch

from ...instruments.extra import once
from ...measure.edits import factor_value
from ...measure.listing import listed
from ...measure.rounding import digits
from ...measure.run import Run
from ...wiring.nodes import Node, NormNode, places
from ...wiring.nodes import every as every_node
from ...wiring.sums import factors as every_factor
from ..answers import explain, per_block, tolerance
from ..base import Measured, Quirk, Verdict, some
from .entrance import STREAM_SCALE, Entrance, entrance


@once
def carried(run: Run) -> list[float]:
    """For each block the share of a multiplied stream that leaves it again, before any factor on the sum."""
    changes = entrance(run)
    return [_share(changes.leaving[index], changes.entering[index]) for index in range(len(run.text))]


def _share(out: torch.Tensor, entering: torch.Tensor) -> float:
    """Slope of what a module's output moved by on what the stream moved by, between row 0 and the multiplied row."""
    given = (entering[Entrance.scaled] - entering[0]).flatten()
    return float(((out[Entrance.scaled] - out[0]).flatten() * given).sum() / given.square().sum())


def post_ln(run: Run) -> Verdict:
    """Multiplies the stream that enters each block: after a norm on the sum nothing of that factor is left, after a
    plain add all of it. A norm of what the block takes, before it adds anything, is none on a sum.
    """
    changes = entrance(run)
    grown = [
        float(changes.leaving[i][changes.scaled].std() / changes.leaving[i][0].std().clamp_min(1e-30))
        for i in range(len(run.text))
    ]
    measured: Measured = {"stream_times": STREAM_SCALE, "least_output_times": digits(min(grown), 3)}
    summed = [any(map(_norms_a_sum, every_node(anatomy.tree))) for anatomy in run.text.anatomy] or [True] * len(grown)
    return per_block([growth < 1.05 and sums for growth, sums in zip(grown, summed, strict=True)], measured)


def _norms_a_sum(node: Node) -> bool:
    return isinstance(node, NormNode) and bool(places(node))


def scaled_residual_adds(run: Run) -> Verdict:
    """Factors in the derived sum, on a term, on the stream or on the whole, with their values read off, and the block's
    sum fitted against its output. Gates, which the stream computes, are none of them, and neither is a factor of one.
    """
    acting = [_acting(run, index) for index in range(len(run.text))]
    values = [number for factors in acting for numbers in factors.values() for number in numbers]
    names = list(dict.fromkeys(name for factors in acting for name in factors))
    measured: Measured = {"carried": [digits(number, 3) for number in (min(carried(run)), max(carried(run)))]}
    if names:
        measured |= {"factors": names, "smallest": digits(min(values)), "largest": digits(max(values))}
        on_terms = {factor.name for anatomy in run.text.anatomy for term in anatomy.terms for factor in term.factors}
        whole = any(factor.name in names for anatomy in run.text.anatomy for factor in anatomy.factors)
        measured["on"] = "sum" if whole else "contribution" if on_terms >= set(names) else "part"
    sizes = ("smallest", "largest") if len(names) == 1 and measured["smallest"] == measured["largest"] else ()
    explained = explain(run, measured, dict.fromkeys(sizes, names))
    return per_block([bool(factors) for factors in acting], measured, explained)


def _acting(run: Run, index: int) -> dict[str, list[float]]:
    """The factors of a block's sum that change something, by name, with their numbers."""
    found = {}
    for factor in every_factor(run.text.anatomy[index].tree):
        if factor.kind != "gate":
            value = factor_value(run.text, index, factor)
            numbers = value.flatten().tolist() if isinstance(value, torch.Tensor) else [value]
            if any(abs(number - 1) > tolerance(run) for number in numbers):
                found[factor.name] = numbers
    return found


STAYS = 0.15
"""How far from the stream's change that of a module's return may be, relative to it, where the stream is in the sum:
next to a stream that many times as large a contribution that follows a norm is small.
"""


def residual_inside_module(run: Run) -> Verdict:
    """Multiplies the stream that enters each block: a child module whose return moves by the whole change holds the
    residual itself.
    """
    changes = entrance(run)
    found: list[bool | None] = []
    shares = []
    holding: dict[str, None] = {}
    for index in range(len(run.text)):
        entering = changes.entering[index]
        children = {
            name: out
            for (block, name), out in changes.children.items()
            if block == index and out.shape == entering.shape
        }
        given = entering[changes.scaled] - entering[0]
        whole = {
            name: float((out[changes.scaled] - out[0] - given).abs().max() / given.abs().max())
            for name, out in children.items()
        }
        holding |= dict.fromkeys(name for name, share in whole.items() if share < STAYS)
        shares.append(min(whole.values(), default=1.0))
        found.append(shares[-1] < STAYS if whole else None)
    measured: Measured = {"least_difference_from_the_stream": digits(min(shares), 2)}
    return per_block(
        found,
        measured | ({"modules": [*holding]} if holding else {}),
        absent="No child of a block returns a stream.",
    )


NAMED = 4
"""Most factors that a sentence names one by one."""


def _factor_sentence(measured: Measured, blocks: list[int] | None, total: int) -> str:
    names = [f"`{name}`" for name in measured.get("factors") or []] or ["a factor"]
    if len(names) > NAMED:
        names = [*names[: NAMED - 1], f"{len(names) - NAMED + 1} more factors"]
    verb = "multiply" if len(names) > 1 else "multiplies"
    parts = {"sum": "the block's sum, stream included", "part": "parts of the block's sum"}
    what = parts.get(str(measured.get("on")), "what is added")
    least, most = measured.get("smallest"), measured.get("largest")
    size = "" if least is None else f", by {least}" if least == most else ", by another number on each block"
    return f"On {some(blocks or [], total)} {listed(names)} {verb} {what}{size}."


def _holding(measured: Measured) -> str:
    """The modules that hold the stream, by their names on the block."""
    names = [f"`{name}`" for name in measured.get("modules") or []] or ["a sublayer's module"]
    return ("each of " if len(names) > 1 else "") + listed(names)


QUIRKS = (
    Quirk(
        "post-ln",
        "Post-LN",
        "text",
        post_ln,
        lambda m, b, n: (
            f"On {some(b or [], n)} the norm follows the add: the stream itself is normed, and its scale on entry "
            "is forgotten."
        ),
    ),
    Quirk("scaled-residual-adds", "Scaled residual adds", "text", scaled_residual_adds, _factor_sentence),
    Quirk(
        "residual-inside-module",
        "Residual inside the module",
        "text",
        residual_inside_module,
        lambda m, b, n: f"On {some(b or [], n)} {_holding(m)} returns a contribution with the stream already added.",
    ),
)
