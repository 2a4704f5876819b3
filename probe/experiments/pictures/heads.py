"""Attention patterns of real weights: the heads that do most of something a reader can see."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from ...measure.run import Run
from ...schema import Picture
from ..attention.traced import attention_value

LONGEST = 24
"""Most tokens of a pattern."""

Score = Callable[[torch.Tensor], torch.Tensor]


def _before(pattern: torch.Tensor) -> torch.Tensor:
    return pattern.diagonal(-1, 1, 2).mean(-1)


def _first(pattern: torch.Tensor) -> torch.Tensor:
    return pattern[:, 1:, 0].mean(-1)


def _spread(pattern: torch.Tensor) -> torch.Tensor:
    """Mean entropy of the rows after the first, relative to that of an even row."""
    rows = pattern[:, 1:]
    most = torch.arange(2, pattern.shape[1] + 1, device=pattern.device).log()
    return (torch.special.entr(rows).sum(-1) / most).mean(-1)


RULES: tuple[tuple[str, str, Score, str], ...] = (
    ("before", "The head that gives most to the token before", _before, "gives the token before {:.0%} at the mean"),
    ("first", "The head that gives most to the first token", _first, "gives the first token {:.0%} at the mean"),
    ("spread", "The head that spreads most evenly", _spread, "reaches {:.0%} of an even row's entropy at the mean"),
)
"""Name, caption, the score of each head of ``[heads, query, key]``, and what it says; the head with the highest of all
is shown.
"""


def pictures(run: Run) -> list[Picture]:
    """A pattern for each rule, on the prompt; none on seeded weights, which say nothing of a trained head."""
    if run.model.loaded.target.kind != "weights":
        return []
    read = {index: attention_value(run, index, "attention_probabilities") for index in range(len(run.text))}
    return chosen({index: value[0] for index, value in read.items() if value is not None}, _tokens(run))


def chosen(patterns: Mapping[int, torch.Tensor], tokens: list[str]) -> list[Picture]:
    """The head of each rule.

    Args:
        patterns: block -> ``[heads, query, key]``; what is not as long as the prompt, or on more, is passed over.
        tokens: the prompt, one by one.
    """
    size = len(tokens)
    square = {index: pattern for index, pattern in patterns.items() if pattern.shape[1:] == (size, size)}
    found: list[Picture] = []
    for name, label, score, said in RULES if square and 2 < size <= LONGEST else ():
        best, index, head = max((float(n), i, h) for i, each in square.items() for h, n in enumerate(score(each)))
        rows = (square[index][head] * 100).round().int().tolist()
        found.append(
            Picture(
                name=f"pattern-{name}",
                kind="pattern",
                label=f"{label}: block {index}, head {head}",
                blocks=[index],
                axes=["key", "query"],
                rows=[" ".join(map(str, row)) for row in rows],
                ticks=tokens,
                statement=f"Head {head} of block {index} {said.format(best)}, more than any other head on this prompt.",
            )
        )
    return found


def _tokens(run: Run) -> list[str]:
    tokenizer = run.model.loaded.tokenizer
    return [] if tokenizer is None else [str(tokenizer.decode([token])) for token in run.inputs["input_ids"][0]]
