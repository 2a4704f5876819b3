"""How a block is wired: norms around its sublayers, what multiplies a contribution, how sublayers meet the stream.

The wiring itself was derived from the traced forward (:mod:`probe.measure.anatomy`); what a block does to its stream is
seen by changing the stream on its way in.
"""

from __future__ import annotations

import torch

from ..measure.anatomy import BlockAnatomy, Term
from ..measure.edits import factor_value
from ..measure.nodes import Node, NormNode, OuterNode, places
from ..measure.nodes import every as every_node
from ..measure.rounding import digits
from ..measure.run import Run
from ..measure.sums import factors as every_factor
from .answers import per_block, phrase
from .base import Measured, Quirk, Verdict, some
from .entrance import entrance
from .extra import once
from .forwards import STREAM_SCALE, streams


def _sublayers(anatomy: BlockAnatomy) -> list[Term]:
    return [term for term in anatomy.terms if term.kind != "branch"]


def sandwich_norms(run: Run) -> Verdict:
    """Norms on the dataflow from the stream into each sublayer and from it to the add; with none after it, the
    answer is no.
    """
    every = [_sublayers(anatomy) for anatomy in run.text.anatomy]
    found = [any(term.pre_norm and term.post_norm for term in terms) for terms in every]
    before = sum(term.pre_norm is not None for terms in every for term in terms)
    after = sum(term.post_norm is not None for terms in every for term in terms)
    return per_block(found, {"norms_before": before, "norms_after": after, "sublayers": sum(map(len, every))})


def post_norms(run: Run) -> Verdict:
    """A sublayer whose output is normed while its input is the stream itself; a norm before it would make the
    answer no.
    """
    every = [_sublayers(anatomy) for anatomy in run.text.anatomy]
    found = [any(term.post_norm and not term.pre_norm for term in terms) for terms in every]
    return per_block(
        found, {"sublayers_reading_the_stream": sum(not term.pre_norm for terms in every for term in terms)}
    )


@once
def carried(run: Run) -> list[float]:
    """For each block the share of a multiplied stream that leaves it again, before any factor on the sum."""
    changes = streams(run)
    return [_share(changes.leaving[index], changes.entering[index]) for index in range(len(run.text))]


def _share(out: torch.Tensor, entering: torch.Tensor) -> float:
    """Slope of what a module's output moved by on what the stream moved by, between row 0 and the multiplied row."""
    given = (entering[1] - entering[0]).flatten()
    return float(((out[1] - out[0]).flatten() * given).sum() / given.square().sum())


def post_ln(run: Run) -> Verdict:
    """Multiplies the stream that enters each block: after a norm on the sum nothing of that factor is left, after a
    plain add all of it. A norm of what the block takes, before it adds anything, is none on a sum.
    """
    changes = streams(run)
    grown = [
        float(changes.leaving[i][1].std() / changes.leaving[i][0].std().clamp_min(1e-30)) for i in range(len(run.text))
    ]
    measured: Measured = {"stream_times": STREAM_SCALE, "least_output_times": digits(min(grown), 3)}
    summed = [any(map(_norms_a_sum, every_node(anatomy.tree))) for anatomy in run.text.anatomy] or [True] * len(grown)
    return per_block([growth < 1.05 and sums for growth, sums in zip(grown, summed, strict=True)], measured)


def _norms_a_sum(node: Node) -> bool:
    return isinstance(node, NormNode) and bool(places(node))


def scaled_residual_adds(run: Run) -> Verdict:
    """Factors in the derived sum, on a term, on the stream or on the whole, with their values read off, and the block's
    sum fitted against its output. Gates, which the stream computes, are none of them.
    """
    names: list[str] = []
    values: list[float] = []
    found = []
    for index, anatomy in enumerate(run.text.anatomy):
        factors = [factor for factor in every_factor(anatomy.tree) if factor.kind != "gate"]
        found.append(bool(factors))
        for factor in factors:
            names.append(factor.name)
            value = factor_value(run.text, index, factor)
            values += value.flatten().tolist() if isinstance(value, torch.Tensor) else [value]
    measured: Measured = {"carried": [digits(number, 3) for number in (min(carried(run)), max(carried(run)))]}
    if names:
        measured |= {
            "factors": list(dict.fromkeys(names)),
            "smallest": digits(min(values)),
            "largest": digits(max(values)),
        }
        on_terms = {factor.name for anatomy in run.text.anatomy for term in anatomy.terms for factor in term.factors}
        whole = any(anatomy.factors for anatomy in run.text.anatomy)
        measured["on"] = "sum" if whole else "contribution" if on_terms >= set(names) else "part"
    return per_block(found, measured)


def tuple_blocks(run: Run) -> Verdict:
    """What the block's forward returned: a tuple, or the stream itself."""
    return per_block([anatomy.returns == "tuple" for anatomy in run.text.anatomy])


def parallel_blocks(run: Run) -> Verdict:
    """Whether a block's sublayers read the same point of the stream; one that reads after another's add makes the
    answer no.
    """
    found = [anatomy.topology == "parallel" if len(anatomy.terms) > 1 else None for anatomy in run.text.anatomy]
    return per_block(found, absent="Each block adds one contribution.")


def parallel_mixers(run: Run) -> Verdict:
    """Whether an attention and another mixer of a block read the same point of the stream."""
    found = []
    for anatomy in run.text.anatomy:
        points = {kind: {id(t.reads) for t in anatomy.terms if t.kind == kind} for kind in ("attention", "mixer")}
        found.append(bool(points["attention"] & points["mixer"]))
    return per_block(found)


def one_sublayer_blocks(run: Run) -> Verdict:
    """Counts the contributions a block adds."""
    counts = [len(anatomy.terms) for anatomy in run.text.anatomy]
    return per_block([count == 1 for count in counts], {"fewest_adds": min(counts), "most_adds": max(counts)})


STAYS = 0.15
"""How far from the stream's change that of a module's return may be, relative to it, where the stream is in the sum:
next to a stream 64 times as large a contribution that follows a norm is small.
"""


def residual_inside_module(run: Run) -> Verdict:
    """Multiplies the stream that enters each block: a child module whose return moves by the whole change holds the
    residual itself.
    """
    changes = streams(run)
    found: list[bool | None] = []
    shares = []
    for index in range(len(run.text)):
        entering = changes.entering[index]
        children = {
            name: out
            for (block, name), out in changes.children.items()
            if block == index and out.shape == entering.shape
        }
        given = entering[changes.scaled] - entering[0]
        whole = [
            float((out[changes.scaled] - out[0] - given).abs().max() / given.abs().max()) for out in children.values()
        ]
        shares.append(min(whole, default=1.0))
        found.append(shares[-1] < STAYS if whole else None)
    return per_block(
        found,
        {"least_difference_from_the_stream": digits(min(shares), 2)},
        absent="No child of a block returns a stream.",
    )


def hyper_connections(run: Run) -> Verdict:
    """The number of axes of the stream between blocks, three or one more where there are several streams; and, where
    those are folded into one axis, whether a block's sum spreads a contribution over them.
    """
    spread = [any(isinstance(node, OuterNode) for node in every_node(a.tree)) for a in run.text.anatomy]
    folded = {index for index, spreads in enumerate(spread) if spreads}
    axes = [run.text.get(index, "", "layer_output") for index in range(len(run.text))]
    return per_block([None if v is None else v.ndim > 3 or index in folded for index, v in enumerate(axes)])


def no_mlp(run: Run) -> Verdict:
    """A block with an MLP's contribution that no module of the block returns as its own: the block calls the MLP's
    layers itself. Blocks without such a contribution have nothing that a module could hold.
    """
    every = [[term for term in anatomy.terms if term.kind == "mlp"] for anatomy in run.text.anatomy]
    found = [any(not term.hosts for term in terms) if terms else None for terms in every]
    return per_block(found, absent="No contribution is an MLP's.")


def hybrid(run: Run) -> Verdict:
    """The kinds of what mixes positions on each block; the same on all of them makes the answer no. An attention counts
    where it runs, also on the way into another sublayer.
    """
    attends = entrance(run).attends if run.readings else [False] * len(run.text)
    kinds = [
        "+".join(sorted({t.kind for t in anatomy.terms if t.kind in ("attention", "mixer")} | inner)) or "none"
        for anatomy, inner in zip(run.text.anatomy, ({"attention"} if a else set() for a in attends), strict=True)
    ]
    return Verdict("yes" if len(set(kinds)) > 1 else "no", measured={"kinds": sorted(set(kinds))})


def _factor_sentence(measured: Measured, blocks: list[int] | None, total: int) -> str:
    names = [f"`{name}`" for name in measured.get("factors") or []] or ["a factor"]
    verb = "multiply" if len(names) > 1 else "multiplies"
    parts = {"sum": "the block's sum, stream included", "part": "parts of the block's sum"}
    what = parts.get(str(measured.get("on")), "what is added")
    least, most = measured.get("smallest"), measured.get("largest")
    size = "" if least is None else f", by {least}" if least == most else ", by another number on each block"
    return f"On {some(blocks or [], total)} {' and '.join(names)} {verb} {what}{size}."


QUIRKS = (
    Quirk(
        "sandwich-norms",
        "Sandwich norms",
        "text",
        sandwich_norms,
        lambda m, b, n: (
            f"On {some(b or [], n)} a sublayer is normed on both sides: a norm stands before it, and the stream "
            "receives the output of the norm after it."
        ),
    ),
    Quirk(
        "post-norms",
        "Post-norms",
        "text",
        post_norms,
        lambda m, b, n: (
            f"On {some(b or [], n)} a sublayer reads the raw stream, and only its output is normed before the add."
        ),
    ),
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
        "tuple-blocks",
        "Blocks return a tuple",
        "text",
        tuple_blocks,
        lambda m, b, n: (
            f"The module of {some(b or [], n)} returns a tuple whose first element is the stream; `layer_output` "
            "is that element."
        ),
    ),
    Quirk(
        "parallel-blocks",
        "Parallel blocks",
        "text",
        parallel_blocks,
        lambda m, b, n: (
            f"On {some(b or [], n)} the attention and the MLP read the same point of the stream, and both are "
            "added to it."
        ),
    ),
    Quirk(
        "parallel-mixers",
        "Parallel mixers",
        "text",
        parallel_mixers,
        lambda m, b, n: (
            f"On {some(b or [], n)} an attention and a recurrent mixer read the same point of the stream, and both are "
            "added to it."
        ),
    ),
    Quirk(
        "one-sublayer-blocks",
        "One sublayer a block",
        "text",
        one_sublayer_blocks,
        lambda m, b, n: f"A single contribution is added on {some(b or [], n)}.",
    ),
    Quirk(
        "residual-inside-module",
        "Residual inside the module",
        "text",
        residual_inside_module,
        lambda m, b, n: (
            f"On {some(b or [], n)} a sublayer's module returns its contribution with the stream already added."
        ),
    ),
    Quirk(
        "hyper-connections",
        "Hyper-connections",
        "text",
        hyper_connections,
        lambda m, b, n: "Several residual streams run side by side: what leaves a block has an axis for them.",
    ),
    Quirk(
        "no-mlp",
        "No MLP module",
        "text",
        no_mlp,
        lambda m, b, n: (
            f"On {some(b or [], n)} no module holds the MLP: its layers stand in the block, which calls them itself."
        ),
    ),
    Quirk(
        "hybrid",
        "Hybrid blocks",
        "text",
        hybrid,
        lambda m, b, n: (
            "Blocks mix positions in different "
            f"ways{phrase({'k': ', '.join(m.get('kinds') or []) or None}, 'k', ': {}')}."
        ),
    ),
)
