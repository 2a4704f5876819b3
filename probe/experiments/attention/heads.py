"""From the pattern to the output projection: sinks, gates and norms on the heads' outputs, and norms inside an MLP."""

from __future__ import annotations

import torch

from ...instruments.extra import moved, once
from ...instruments.projected import projections
from ...measure.rounding import digits
from ...measure.run import Run
from ...standard.stack import same
from ..answers import spread, tolerance
from ..base import Quirk, Verdict, some
from .projections import MOVES
from .scores import seen
from .sources import gated_query
from .traced import judged


def attention_sink(run: Run) -> Verdict:
    """Sums each row of the pattern: less than one where something beside the keys takes a share of the softmax."""
    sums = [None if block is None else block.pattern.sum(-1) for block in seen(run)]
    found = [None if total is None else float(total.min()) < 1 - tolerance(run) for total in sums]
    known = [float(total.min()) for total in sums if total is not None]
    return judged(run, found, {"least_row_sum": digits(min(known))} if known else {})


def sink_scaled_heads(run: Run) -> Verdict:
    """Head outputs against pattern · values: a factor a head and query, while the rows sum to one, makes the answer
    yes.
    """
    found: list[bool | None] = []
    ratios: list[float] = []
    for block in seen(run):
        if block is None or block.values.shape[2] != block.pattern.shape[3]:
            found.append(None)
            continue
        mixed = (block.pattern @ block.values).transpose(1, 2)
        if mixed.shape != block.outputs.shape:
            found.append(None)
            continue
        ratio = (block.outputs * mixed).sum(-1) / mixed.square().sum(-1).clamp_min(1e-30)
        fits = same(ratio[..., None] * mixed, block.outputs, tolerance(run))
        scaled = fits and not same(mixed, block.outputs, tolerance(run))
        ratios += spread(ratio.flatten().tolist()) if scaled else []
        found.append(scaled and float(block.pattern.sum(-1).min()) > 1 - tolerance(run))
    return judged(run, found, {"factors": [digits(ratio) for ratio in spread(ratios)]} if ratios else {})


def output_gate(run: Run) -> Verdict:
    """What the output projection takes against the heads' outputs, and against four times as large ones: a gate
    follows, a norm does not. Beside a norm, or inside the output projection, a gate is seen by a projection that moves
    the output and nothing before it. A gate that the query projection yields beside the queries is another property.
    """
    normed, gates = inside_attention(run), gate_projections(run)
    beside = gated_query(run).blocks or []
    found: list[bool | None] = []
    for index, block in enumerate(seen(run)):
        if block is None:
            found.append(None)
            continue
        gated = bool(gates[index])
        if block.premix is not None and block.premix.numel() == block.outputs.numel():
            between = _between(block.premix.reshape(block.outputs.shape), block.outputs, tolerance(run))
            gated = gated or (between == "more" and normed[index] is not True)
        found.append(gated and index not in beside)
    return judged(run, found)


def _between(premix: torch.Tensor, outputs: torch.Tensor, close: float) -> str:
    """What stands between the heads' outputs and what the output projection takes: `nothing`; a `turn`, after which
    every head is as long as before; or `more`.
    """
    if same(premix, outputs, close):
        return "nothing"
    return "turn" if same(premix.norm(dim=-1), outputs.norm(dim=-1), close) else "more"


def turned_heads(run: Run) -> Verdict:
    """The same two: heads that differ but are as long as before were turned."""
    found = [
        None
        if block is None or block.premix is None or block.premix.numel() != block.outputs.numel()
        else _between(block.premix.reshape(block.outputs.shape), block.outputs, tolerance(run)) == "turn"
        for block in seen(run)
    ]
    return judged(run, found)


@once
def gate_projections(run: Run) -> list[list[str]]:
    """For each block the projections whose noise moves what the attention returns by way of another projection, but
    neither queries, keys, values nor the heads' outputs, on which they do not depend either.
    """
    given = projections(run)
    found: list[list[str]] = []
    for index, tapped in enumerate(given.taps):
        parts = [tapped.queries, tapped.keys, tapped.values, tapped.heads]
        held = [part for part in parts if part is not None]
        own = [path for path in given.own[index] if (index, path) in given.outputs and len(held) == len(parts)]
        found.append(
            [
                path
                for path in own
                if all(moved(part, given.noise[path]) < tolerance(run) for part in held)
                and moved(given.outputs[index, path], given.heads) < tolerance(run)
                and moved(given.returned[index], given.noise[path]) > MOVES
                and any(moved(given.outputs[index, other], given.noise[path]) > MOVES for other in own if other != path)
            ]
        )
    return found


@once
def inside_attention(run: Run) -> list[bool | None]:
    """For each block whether what the attention returns stays when its heads' outputs are multiplied by four, and with
    it what each of its projections gives.
    """
    given = projections(run)
    found: list[bool | None] = []
    for index, tapped in enumerate(given.taps):
        outputs = [out for (block, _), out in given.outputs.items() if block == index]
        outputs += [given.returned[index]] if index in given.returned else []
        if tapped.heads is None or not outputs:
            found.append(None)
            continue
        found.append(max(moved(out, given.heads) for out in outputs) < max(1e-3, tolerance(run)))
    return found


def sub_norms(run: Run) -> Verdict:
    """Multiplies the heads' outputs, and the MLP's up projection, by four: a norm before the output projection
    keeps its result as it was.
    """
    given = projections(run)
    attention = inside_attention(run)
    mlp = [
        None if index not in given.down else moved(given.down[index], given.up) < max(1e-3, tolerance(run))
        for index in range(len(run.text))
    ]
    places = [name for name, answers in (("attention", attention), ("MLP", mlp)) if any(answers)]
    found = [bool(a or m) for a, m in zip(attention, mlp, strict=True)]
    holds = [index for index, answer in enumerate(found) if answer]
    if holds:
        return Verdict("yes", holds, {"in": places})
    if all(answer is None for answer in (*attention, *mlp)):
        return Verdict("n/a", why="No block has an attention's heads or an MLP's up and down projections.")
    return Verdict("no", [])


QUIRKS = (
    Quirk(
        "attention-sink",
        "Attention sink",
        "text",
        attention_sink,
        lambda m, b, n: (
            f"On {some(b or [], n)} a learned logit joins the softmax, so that a row of the pattern sums to less "
            "than one."
        ),
    ),
    Quirk(
        "sink-scaled-heads",
        "Heads scaled by a sink",
        "text",
        sink_scaled_heads,
        lambda m, b, n: (
            f"On {some(b or [], n)} a factor a head and query multiplies the heads' outputs while the rows of the "
            "pattern still sum to one."
        ),
    ),
    Quirk(
        "output-gate",
        "Gated heads",
        "text",
        output_gate,
        lambda m, b, n: f"On {some(b or [], n)} a gate multiplies the heads' outputs before the output projection.",
    ),
    Quirk(
        "turned-heads",
        "Heads turned before mixing",
        "text",
        turned_heads,
        lambda m, b, n: (
            f"On {some(b or [], n)} the heads' outputs are turned before the output projection, so that what it takes "
            "is not pattern · values."
        ),
    ),
    Quirk(
        "sub-norms",
        "Norms inside sublayers",
        "text",
        sub_norms,
        lambda m, b, n: (
            f"On {some(b or [], n)} a norm stands inside the {' and the '.join(m.get('in') or ['sublayer'])}, "
            "before the output projection."
        ),
    ),
)
