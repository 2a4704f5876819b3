"""A stack of blocks: what was read of it, how each block is wired, and which standard value holds each contribution."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
from nnsight.intervention.envoy import Envoy

from ..errors import ProbeError
from ..wiring.anatomy import BlockAnatomy, Term
from .trace import Key, Readings

CLOSE = 1e-5
"""Largest relative difference at which two tensors of one float32 run count as the same."""


@dataclass
class Contribution:
    """What one sublayer adds: the derived term, and the standard value that was found to hold it."""

    term: Term
    host: str
    name: str


@dataclass
class Stack:
    """A stack of blocks, of the text model or of the vision tower, with what was read of it."""

    label: str
    envoys: list[Envoy]
    anatomy: list[BlockAnatomy]
    readings: Readings
    used: set[tuple[str, str]] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.envoys)

    def host(self, name: str) -> str:
        return f"{self.label}.{name}" if name else self.label

    def get(self, index: int, host: str, name: str) -> torch.Tensor | None:
        """A value of block ``index`` in float32, or None where the block has none."""
        value = self.readings.get(Key(self.host(host), index, name))
        if value is None:
            return None
        self.used.add((self.host(host), name))
        return value.float() if value.is_floating_point() else value

    @cached_property
    def contributions(self) -> list[list[Contribution]]:
        """For each block its contributions, each derived term matched with the declared value that holds it.

        Raises:
            ProbeError: no declared value holds a term; the message gives both readings.
        """
        return [[self._match(index, term) for term in anatomy.terms] for index, anatomy in enumerate(self.anatomy)]

    def _match(self, index: int, term: Term) -> Contribution:
        here = [key for key in self.readings if key.block == index and key.host.startswith(self.label)]
        candidates = [key for key in here if key.name in CONTRIBUTIONS]
        for key in candidates:
            held = self.readings[key]
            if held.numel() == term.tensor.numel() and same(held.reshape(term.tensor.shape), term.tensor):
                return Contribution(term, key.host.removeprefix(self.label).lstrip("."), key.name)
        raise ProbeError(
            f"Block {index} of {self.label}: derived from the run, it adds the output of {term.leaf!r}; declared, its "
            f"contributions are {', '.join(f'{key.host}.{key.name}' for key in candidates)}, and none of them is that "
            "tensor. Correct the family module."
        )


CONTRIBUTIONS = ("attention_output", "mlp_output", "per_layer_output", "branch_output")
"""The names under which a family may declare a contribution to the stream."""


def same(left: torch.Tensor, right: torch.Tensor, tolerance: float = CLOSE) -> bool:
    """Whether two tensors agree up to ``tolerance`` times their scale; those with an infinite number have none."""
    if left.shape != right.shape:
        return False
    scale = max(float(right.abs().max()), 1e-30)
    if math.isinf(scale):
        return False
    return float((left.float() - right.float()).abs().max()) <= tolerance * scale
