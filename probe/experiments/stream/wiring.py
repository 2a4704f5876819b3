"""How a block is wired: norms around its sublayers, what multiplies a contribution, how sublayers meet the stream.

The wiring itself was derived from the traced forward (:mod:`probe.wiring.anatomy`); what a block does to its stream is
seen by changing the stream on its way in.
"""

from __future__ import annotations

import math

from ...instruments.projected import projections
from ...measure.listing import listed
from ...measure.run import Run
from ...wiring.anatomy import BlockAnatomy, Term
from ...wiring.nodes import OuterNode
from ...wiring.nodes import every as every_node
from ..answers import per_block
from ..base import Measured, Quirk, Verdict, some


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


def hyper_connections(run: Run) -> Verdict:
    """Counts the streams between blocks: by an axis more than rows, positions and width; or, where they are folded into
    the width, by how much wider the stream is than a contribution that the block's sum spreads over them.
    """
    counts = [_streams(run, index) for index in range(len(run.text))]
    several = sorted({count for count in counts if count is not None and count > 1})
    measured: Measured = {"streams": several[0]} if len(several) == 1 else {}
    return per_block([None if count is None else count > 1 for count in counts], measured)


def _streams(run: Run, index: int) -> int | None:
    """How many streams leave a block; None where its output was not read."""
    leaving, anatomy = run.text.get(index, "", "layer_output"), run.text.anatomy[index] if run.text.anatomy else None
    if leaving is None:
        return None
    *axes, width = leaving.shape
    if len(axes) > 2:
        rows = len(next(iter(run.inputs.values())))
        return math.prod(axes) // (rows * max(axes))
    spreads = anatomy is not None and any(isinstance(node, OuterNode) for node in every_node(anatomy.tree))
    return width // min(term.tensor.shape[-1] for term in anatomy.terms) if anatomy is not None and spreads else 1


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
    inside = projections(run).inside if run.readings else []
    attends = [tapped.queries is not None for tapped in inside] or [False] * len(run.text)
    kinds = [
        "+".join(sorted({t.kind for t in anatomy.terms if t.kind in ("attention", "mixer")} | inner)) or "none"
        for anatomy, inner in zip(run.text.anatomy, ({"attention"} if a else set() for a in attends), strict=True)
    ]
    return Verdict("yes" if len(set(kinds)) > 1 else "no", measured={"kinds": sorted(set(kinds))})


WAYS = {
    "attention": "by an attention",
    "attention+mixer": "by an attention and another mixer",
    "mixer": "by another mixer than an attention",
    "none": "not at all",
}
"""What the kinds of what mixes positions on a block are called."""


def _ways(measured: Measured) -> str:
    kinds = measured.get("kinds") or []
    return f": {listed([WAYS[kind] for kind in kinds], 'or')}" if kinds else ""


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
        "hyper-connections",
        "Hyper-connections",
        "text",
        hyper_connections,
        lambda m, b, n: (
            f"{m.get('streams') or 'Several'} residual streams run side by side: what leaves a block holds all of them."
        ),
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
        lambda m, b, n: f"Blocks mix positions in different ways{_ways(m)}.",
    ),
)
