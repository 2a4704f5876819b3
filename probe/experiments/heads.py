"""From the pattern to the output projection: sinks, gates and norms on the heads' outputs, and norms inside an MLP."""

from __future__ import annotations

from ..measure.rounding import digits
from ..measure.run import Run, same
from .answers import NO_INTERFACE, per_block, spread, tolerance
from .attention import NO_SCORES, seen
from .base import Quirk, Verdict, some
from .extra import SCALE, moved, once, projections


def attention_sink(run: Run) -> Verdict:
    """Sums each row of the pattern: less than one where something beside the keys takes a share of the softmax."""
    sums = [None if block is None else block.pattern.sum(-1) for block in seen(run)]
    found = [None if total is None else float(total.min()) < 1 - tolerance(run) for total in sums]
    known = [float(total.min()) for total in sums if total is not None]
    return per_block(found, {"least_row_sum": digits(min(known))} if known else {}, unknown=NO_SCORES)


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
        ratio = (block.outputs * mixed).sum(-1) / mixed.square().sum(-1).clamp_min(1e-30)
        fits = same(ratio[..., None] * mixed, block.outputs, tolerance(run))
        ratios += spread(ratio.flatten().tolist())
        found.append(
            fits
            and float((ratio - 1).abs().max()) > tolerance(run)
            and float(block.pattern.sum(-1).min()) > 1 - tolerance(run)
        )
    return per_block(
        found, {"factors": [digits(ratio) for ratio in spread(ratios)]} if ratios else {}, unknown=NO_SCORES
    )


def output_gate(run: Run) -> Verdict:
    """The output projection's input against the heads' outputs, and against four times as large ones: a gate
    follows, a norm does not.
    """
    inner = inside_attention(run)
    changed = [
        None if block is None or block.premix is None else not same(block.premix, block.outputs, tolerance(run))
        for block in seen(run)
    ]
    found = [None if change is None else change and inner[index] is not True for index, change in enumerate(changed)]
    return per_block(found, unknown=NO_SCORES)


@once
def inside_attention(run: Run) -> list[bool | None]:
    """For each block whether the output projection's result stays when the heads' outputs are multiplied by four."""
    given = projections(run)
    found: list[bool | None] = []
    for index, tapped in enumerate(given.taps):
        if tapped.heads is None:
            found.append(None)
            continue
        outputs = [out for (block, _), out in given.outputs.items() if block == index]
        follows = [
            float((out[given.heads] - SCALE * out[0]).abs().max() / out[0].abs().max()) < tolerance(run)
            for out in outputs
        ]
        stays = [moved(out, given.heads) for out in outputs]
        found.append(not any(follows) and max(stays, default=0.0) < max(1e-3, tolerance(run)))
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
    found = [None if a is None and m is None else bool(a or m) for a, m in zip(attention, mlp, strict=True)]
    places = [name for name, answers in (("attention", attention), ("MLP", mlp)) if any(answers)]
    return per_block(found, {"in": places} if places else {}, unknown=NO_INTERFACE)


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
