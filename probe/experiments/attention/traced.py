"""Values of the attentions, read again in a traced forward on other inputs.

They are read by their standard names, so that it does not matter whether an attention calls transformers' interface or
does its arithmetic itself. Every attention can be given the same input on every row, so that what differs between rows
was changed behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from nnsight.intervention.envoy import Envoy

from ...instruments.extra import accepts, attention_hosts, once, part
from ...instruments.projected import projections
from ...instruments.rows import Change, Rows, hooks
from ...measure.run import Run
from ...standard.trace import Inputs, Key, Worker
from ...standard.trace import run as run_workers
from ...values.hosts import Host
from ..base import Measured, Verdict

NO_ATTENTION = "No block has an attention."
UNREAD = "What is needed of this attention stands at no place of the forward that could be read."
ELSEWHERE = "A softmax over positions runs inside the blocks, in a module whose values could not be located."

Read = dict[tuple[int, str], torch.Tensor]
"""Block and value name -> what was read there."""


def attention_value(run: Run, index: int, name: str) -> torch.Tensor | None:
    """A value of a block's attention in float32; None where the block has none."""
    host = attention_hosts(run)[index]
    return None if host is None else run.text.get(index, host, name)


@once
def attention_modules(run: Run) -> list[torch.nn.Module | None]:
    """The native module of each block's attention."""
    found: list[torch.nn.Module | None] = []
    for envoy, host in zip(run.text.envoys, attention_hosts(run), strict=True):
        attention: Envoy | None = None if host is None else part(envoy, host)
        found.append(None if attention is None else attention._module)
    return found


def aligned(run: Run, rows: Rows) -> list[tuple[torch.nn.Module, Change]]:
    """Changes that give every attention row 0's input on every row."""
    return [(module, rows.align) for module in attention_modules(run) if module is not None]


def groups(run: Run, names: Sequence[str]) -> list[list[tuple[Key, Host]]]:
    """The hosts to ask for each value, block after block: the attention of each block."""
    serving = [
        [(Key(label, index, name), host) for index, (label, host) in _hosts(run).items() if serves(host, name)]
        for name in names
    ]
    return [hosts for hosts in serving if hosts]


@once
def _hosts(run: Run) -> dict[int, tuple[str, Host]]:
    """By block the label and the host of its attention."""
    labels = {index: run.text.host(path) for index, path in enumerate(attention_hosts(run)) if path}
    found: dict[int, tuple[str, Host]] = {}
    for label, index, host in run.model.hosts():
        if index is not None and labels.get(index) == label:
            found[index] = label, host
    return found


def serves(host: Host, name: str) -> bool:
    """Whether a host gives a value in this load."""
    value = host.standard_values().get(name)
    return value is not None and host.refusal(value) is None


def traced_forward(
    run: Run, inputs: Inputs, workers: list[Worker], entering: Iterable[tuple[Any, Change]] = ()
) -> None:
    """One forward without a cache, with workers that read or write, and changes of what modules are called with."""
    given = {**inputs, "use_cache": False} if accepts(run, "use_cache") else inputs
    with hooks(entering):
        run_workers(run.model, given, workers)


def softmax_elsewhere(run: Run) -> bool:
    """Whether a softmax over positions runs inside the blocks, though none has an attention that serves its values."""
    return any(tapped.softmaxes or tapped.interface for tapped in projections(run).inside)


def judged(
    run: Run,
    found: Sequence[bool | None],
    measured: Measured | None = None,
    explained: dict[str, str] | None = None,
    unknown: str = UNREAD,
) -> Verdict:
    """One verdict from an answer for each block with an attention.

    Args:
        found: for each block whether the property holds; None where it has no attention or nothing could be told.
        unknown: why nothing could be told of an attention: the verdict is then `inconclusive`, unless it holds
            on another block.
    """
    hosts = attention_hosts(run)
    numbers = measured or {}
    holds = [index for index, answer in enumerate(found) if answer]
    if holds:
        return Verdict("yes", holds, numbers, explained or {})
    if not any(hosts):
        if softmax_elsewhere(run):
            return Verdict("inconclusive", measured=numbers, why=ELSEWHERE)
        return Verdict("n/a", measured=numbers, why=NO_ATTENTION)
    if any(host is not None and answer is None for host, answer in zip(hosts, found, strict=True)):
        return Verdict("inconclusive", measured=numbers, why=unknown)
    return Verdict("no", [], numbers, explained or {})
