"""Checks of a mixture's interior: the router's choice, the weights, and what the experts give together."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..identities import Block, Check, Form
from ..run import Stack
from .parts import hosts, named


def checks(stack: Stack) -> Iterator[Check]:
    for host in hosts(stack, "moe"):
        yield Check(named("expert choice", host), forms=partial(_choice, host=host))


def _choice(block: Block, host: str) -> Iterator[Form]:
    logits, indices = block.value(host, "router_logits"), block.value(host, "expert_indices")
    if logits is None or indices is None:
        return
    chosen = logits.topk(indices.shape[-1]).indices
    yield Form("topk(router_logits) == expert_indices", (chosen.float(), indices.float()))
