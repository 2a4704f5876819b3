"""From what a page's code left in its namespace to the numbers of its picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from probe.schema.guide import Drawing
from probe.standard import StandardizedTransformer

Namespace = dict[str, Any]
POSITION, BLOCK = "position", "block"


def lens(found: Namespace, checkpoint: str) -> Drawing:
    """The top token by block and position, and its probability."""
    model, of_answer = found["model"], found["of_answer"]
    answer = model.tokenizer.decode([int(found["answer"])])
    tops = [[model.tokenizer.decode([int(top)]) for top in row] for row in found["tops"]]
    first = next(block for block in range(len(tops)) if all(row[-1] == answer for row in tops[block:]))
    half = next(block for block in range(len(tops)) if of_answer[block, -1] > of_answer[-1, -1] / 2)
    return Drawing(
        checkpoint=checkpoint,
        kind="words",
        x=POSITION,
        y=BLOCK,
        ticks=_tokens(model, found["prompt"]),
        grid=_rows(found["lens"].softmax(-1).amax(-1)),
        words=tops,
        marked=answer,
        statement=f"The lens's top token by block and position of “{found['prompt']}”. At the last position "
        f"“{answer.strip()}” is on top from block {first} of {len(tops)} on, and has half its final probability first "
        f"at block {half}.",
    )


def patching(found: Namespace, checkpoint: str) -> Drawing:
    """The share of the answer that a patch brings back, by block and position."""
    model, recovery = found["model"], found["recovery"]
    here = _tokens(model, found["clean"])
    there = _tokens(model, found["other"])
    ticks = [a if a == b else f"{a}/{b}" for a, b in zip(here, there, strict=True)]
    best = recovery.argmax(-1).tolist()
    subject = max(position for position, (a, b) in enumerate(zip(here, there, strict=True)) if a != b)
    leaves = next(block for block, position in enumerate(best) if position > subject)
    first, second = (model.tokenizer.decode([int(found[name])]).strip() for name in ("first", "second"))
    return Drawing(
        checkpoint=checkpoint,
        kind="grid",
        x=POSITION,
        y=BLOCK,
        ticks=ticks,
        grid=_rows(recovery),
        statement=f"How much of “{first}” against “{second}” a patch of one block at one position brings back. Up to "
        f"block {leaves - 1} a patch where the prompts differ brings back most; from block {leaves} on one elsewhere "
        "does, at the end one at the last position.",
    )


def heads(found: Namespace, checkpoint: str) -> Drawing:
    """What the answer loses in log probability without a head, by block and head."""
    lost, having, counts = found["lost"], found["having"], found["heads"]
    most = max(counts)
    rows: list[list[float | None]] = [[None] * most for _ in range(found["model"].num_layers)]
    for (block, _), count in zip(having, counts, strict=True):
        rows[block][:count] = [round(float(lost[block, head]), 4) for head in range(count)]
    (block, head), worst = max(lost.items(), key=lambda pair: float(pair[1]))
    small = sum(abs(float(x)) < 0.1 for x in lost.values())
    answer = found["model"].tokenizer.decode([int(found["answer"])]).strip()
    return Drawing(
        checkpoint=checkpoint,
        kind="grid",
        x="head",
        y=BLOCK,
        ticks=[str(head) for head in range(most)],
        grid=rows,
        statement=f"What “{answer}” loses in log probability without one head. Most, {float(worst):.2f}, without head "
        f"{head} of block {block}; {small} of {len(lost)} heads move it by less than 0.1.",
    )


def steering(found: Namespace, checkpoint: str) -> Drawing:
    """The probabilities of both prompts' answers as the factor grows."""
    model, curve, factors = found["model"], found["curve"], found["factors"]
    tokens = [int(found["plain"].argmax()), int(found["wanted"].argmax())]
    names = [model.tokenizer.decode([token]).strip() for token in tokens]
    turned = next((f for f, row in zip(factors, curve, strict=True) if row[tokens[1]] > row[tokens[0]]), None)
    after = "does not turn" if turned is None else f"turns at a factor of {turned:g}"
    return Drawing(
        checkpoint=checkpoint,
        kind="lines",
        x="factor",
        y="probability",
        ticks=[f"{factor:g}" for factor in factors],
        series={name: _rounded(curve[:, token]) for name, token in zip(names, tokens, strict=True)},
        statement=f"The probability of “{names[0]}” and of “{names[1]}” as the vector is added to the stream that "
        f"leaves block {found['block']} of {model.num_layers}, at the last position. The answer {after}.",
    )


def contributions(found: Namespace, checkpoint: str) -> Drawing:
    """What each block's contributions give to the top token's logit against the second's."""
    model, gives = found["model"], found["gives"]
    kinds = list(dict.fromkeys(name.rpartition(".")[2] for block, name in reversed(found["names"]) if block >= 0))
    series = {kind: [0.0] * model.num_layers for kind in kinds}
    for (block, name), given in zip(found["names"], gives, strict=True):
        if block >= 0:
            series[name.rpartition(".")[2]][block] += round(float(given), 4)
    top, second = (model.tokenizer.decode([int(token)]).strip() for token in found["top"])
    (block, name), most = max(
        zip(found["names"], gives, strict=True), key=lambda pair: float(pair[1]) if pair[0][0] >= 0 else -1e9
    )
    return Drawing(
        checkpoint=checkpoint,
        kind="bars",
        x=BLOCK,
        y="logits",
        ticks=[str(block) for block in range(model.num_layers)],
        series=series,
        statement=f"What each contribution gives to the logit of “{top}” less that of “{second}”, with the final "
        f"norm's scale held. Most, {float(most):.2f}, comes from {name} of block {block}; all together, with the "
        f"stream that enters block 0, give {float(gives.sum()):.2f}.",
    )


DRAWINGS: dict[str, Callable[[Namespace, str], Drawing]] = {
    "logit-lens": lens,
    "activation-patching": patching,
    "head-ablation": heads,
    "steering": steering,
    "contributions": contributions,
}
"""By page."""


def _tokens(model: StandardizedTransformer, text: str) -> list[str]:
    """The tokens of a prompt as text."""
    return [model.tokenizer.decode([token]).strip() for token in model.tokenizer(text).input_ids]


def _rows(grid: torch.Tensor) -> list[list[float | None]]:
    return [list(_rounded(row)) for row in grid]


def _rounded(numbers: Sequence[Any] | torch.Tensor) -> list[float]:
    return [round(float(number), 4) for number in numbers]
