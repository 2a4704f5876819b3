"""How many of the prompt's tokens each expert of a mixture takes."""

from __future__ import annotations

import torch

from ...measure.run import Run
from ...schema import Picture, Series
from ..base import some
from ..mlp.routing import number_of_experts

NUMBERS = 512
"""Most numbers of one picture; of more blocks than that gives, some at equal steps are shown."""

QUIRKS = ["mixture-of-experts", "hash-routing"]


def pictures(run: Run) -> list[Picture]:
    """One picture, with a row of bars for each block that has a mixture whose choice was read."""
    counts = {index: _counts(run, index) for index in range(len(run.text))}
    known = {index: count for index, count in counts.items() if count is not None}
    if not known:
        return []
    experts = max(map(len, known.values()))
    step = -(-len(known) * experts // NUMBERS)
    shown = dict(list(known.items())[::step])
    index, first = next(iter(shown.items()))
    chosen, tokens = _chosen(run, index)
    busiest = max(max(count) for count in shown.values())
    idle = sum(number == 0 for count in shown.values() for number in count)
    every = sum(map(len, shown.values()))
    return [
        Picture(
            name="load",
            kind="load",
            label="Tokens of the prompt that each expert takes",
            quirks=QUIRKS,
            blocks=list(shown),
            axes=["expert", "tokens"],
            series=[Series(name=f"block {block}", numbers=[float(n) for n in count]) for block, count in shown.items()],
            statement=(
                f"On {some(list(shown), len(run.text))} each of {tokens} tokens goes to {chosen} of {len(first)} "
                f"experts; the busiest of a block takes {busiest} of them, and {_idle(idle, every)}."
            ),
        )
    ]


def _idle(idle: int, every: int) -> str:
    return f"{idle} of the {every} shown take none" if idle else "each takes some"


def _counts(run: Run, index: int) -> list[int] | None:
    """Tokens by expert on one block; None where its choice, or how many experts there are, was not read."""
    chosen, experts = _value(run, index, "expert_indices"), number_of_experts(run, index)
    if chosen is None or experts is None:
        return None
    return torch.bincount(chosen.flatten().long().cpu(), minlength=experts).tolist()


def _chosen(run: Run, index: int) -> tuple[int, int]:
    """Experts that a token takes, and tokens, on a block whose choice was read."""
    chosen = _value(run, index, "expert_indices")
    assert chosen is not None
    return chosen.shape[-1], chosen.shape[:-1].numel()


def _value(run: Run, index: int, name: str) -> torch.Tensor | None:
    label = run.text.label
    return next(
        (
            value
            for key, value in run.readings.items()
            if key.block == index and key.name == name and key.host.startswith(label)
        ),
        None,
    )
