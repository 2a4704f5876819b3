"""Prompts, and the first of them again at other positions, with what the attentions do read in one traced forward.

Every attention gets the first prompt's input on all of its rows, which stand at shifted positions, so that only the
position can make them differ; and one input at every position on a last row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ...instruments.rows import Change, Rows
from ...instruments.tap import MASKED
from ...measure.run import Run
from ...standard.trace import Inputs, Key, Worker
from ...values.hosts import Host
from .traced import attention_modules, groups, serves, traced_forward

QUERIES, KEYS, SCORES = "attention_queries", "attention_keys", "attention_scores"

Read = dict[tuple[int, str], torch.Tensor]
"""Block and value name -> what was read there."""


@dataclass(frozen=True)
class Looked:
    """What was read of the attentions on a batch of prompts, and on the first one at other positions.

    Attributes:
        visible: for each block what its queries may see, ``[prompts, heads, query, key]``; None where its pattern could
            not be read.
        values: by block, ``[prompts, heads, seq, head_dim]``.
        moved: queries and keys of the first prompt at each shift, and last of one input at every position,
            ``[shifts + 1, heads, seq, width]``; and the scores of that last row, ``[heads, query, key]``. Nothing where
            no shift was asked for.
    """

    visible: list[torch.Tensor | None]
    values: dict[int, torch.Tensor]
    moved: Read = field(default_factory=dict)


def look(run: Run, ids: torch.Tensor, shifts: Sequence[int] = (), patterns: bool = True) -> Looked:
    """One forward, without a cache.

    Args:
        ids: the prompts' token ids, ``[prompts, seq]``.
        shifts: by how many positions the first prompt is moved, the first by none; one alone leaves the positions to
            the model. Nothing runs it at other positions.
        patterns: whether to read what queries may see, and the values.

    Raises:
        IndexError, RuntimeError: the model does not go as far as it was moved.
    """
    prompts, length = ids.shape
    rows = Rows(prompts + len(shifts)).share(prompts, len(shifts))
    found = Looked([None] * len(run.text), {})

    served = _with_patterns(run)
    held = [pair for group in groups(run, ["attention_values"]) for pair in group] if patterns else []

    def taking(name: str, hosts: list[tuple[Key, Host]]) -> Worker:
        def worker() -> None:
            for key, host in hosts:
                found.moved[key.block or 0, name] = rows.only(getattr(host, name).detach()).float()

        return worker

    def seeing() -> None:
        for index, host in served:
            scores = host.attention_scores.detach() if serves(host, SCORES) else None
            if scores is not None and shifts:
                found.moved[index, SCORES] = scores[-1].float().clone()
            if patterns and serves(host, "attention_probabilities"):
                pattern = host.attention_probabilities.detach()[:prompts].float()
                found.visible[index] = seen_by(pattern, None if scores is None else scores[:prompts].float())

    def holding() -> None:
        for key, host in held:
            found.values[key.block or 0] = host.attention_values.detach()[:prompts].float().clone()

    workers: list[Worker] = [*([seeing] if served else []), *([holding] if held else [])]
    if shifts:
        workers += [taking(name, hosts) for name in (QUERIES, KEYS) for hosts in groups(run, [name])]
    entering: list[tuple[torch.nn.Module, Change]] = []
    repeated = rows.change(len(shifts), lambda row: row[1:2].expand_as(row))
    for module in attention_modules(run) if shifts else ():
        entering += [] if module is None else [(module, rows.align), (module, repeated)]
    batch = torch.cat([ids, ids[:1].expand(len(shifts), -1)])
    inputs: Inputs = {"input_ids": batch, "attention_mask": torch.ones_like(batch)}
    if len(shifts) > 1:
        start = torch.tensor([*[0] * prompts, *shifts[1:], 0], device=ids.device)[:, None]
        inputs["position_ids"] = start + torch.arange(length, device=ids.device)[None]
    traced_forward(run, inputs, workers, entering)
    return found


def _with_patterns(run: Run) -> list[tuple[int, Host]]:
    """The attentions that serve their scores or their pattern, block after block."""
    hosts = {key.block or 0: host for group in groups(run, [SCORES, "attention_probabilities"]) for key, host in group}
    return sorted(hosts.items())


UNDERFLOW = -80.0
"""How far below a row's largest score float32 rounds a share of the softmax to zero."""


def seen_by(pattern: torch.Tensor, scores: torch.Tensor | None) -> torch.Tensor:
    """The keys a pattern gives a share to, with those whose share is lost in rounding."""
    if scores is None or scores.shape[-2:] != pattern.shape[-2:]:
        return pattern > 0
    low = (scores > MASKED) & (scores - scores.amax(-1, keepdim=True) < UNDERFLOW)
    return (pattern > 0) | low
