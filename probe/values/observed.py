"""A value that is only read: its place is passed several times in a forward, or nothing of the forward reads it.

The state of a recurrence is the case in point. A loop over the tokens gives it once a token at one and the same
operation, and the state that leaves a block is kept for the next token, which no logit of this forward depends on.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from nnsight.intervention.interleaver import Mediator

from ..schema import PASSES, Pass
from .value import StandardValue, UnavailableValue

if TYPE_CHECKING:
    from .hosts import Host


class ObservedValue(StandardValue):
    """A read-only value.

    Args:
        chunk: tokens that one pass of the place takes; None where the place is passed once in each run.
        runs: how many times the loop runs, once for each head; the heads stand on an axis of their own.
        last: only the last pass of each run is the value. Without it each pass is a token of the value.
        others: as of :class:`~probe.values.value.StandardValue`.
    """

    def __init__(
        self,
        layout: str,
        at: str,
        description: str,
        *,
        chunk: int | None = None,
        runs: int = 1,
        last: bool = True,
        axes: str | None = None,
    ) -> None:
        super().__init__(layout, at, description, axes=axes)
        self.chunk, self.runs, self.last = chunk, runs, last

    @property
    def writable(self) -> bool:
        return False

    @property
    def passes(self) -> list[Pass]:
        when: list[Pass] = [] if self.chunk is None else ["last"] if self.last else ["each token"]
        return [*when, "each head"] if self.runs > 1 else when

    @cached_property
    def words(self) -> str:
        """Where the value is read, in words, and which time that its place is passed."""
        return ", ".join([self.location.words(), *(PASSES[each] for each in self.passes)])

    def _read(self, host: Host) -> Any:
        at = self.location.served_at(host)
        mediator = Mediator.current(at)
        before = mediator.iteration
        first = self._pass(mediator, at, 0)  # only now has the forward begun, and said how long its input is
        passes = 1 if self.chunk is None else -(-(host.call_size or (0, 1))[1] // self.chunk)
        runs = []
        for run in range(self.runs):
            wanted = [passes - 1] if self.last else list(range(passes))
            held = [self._pass(mediator, at, pick) if (pick := run * passes + step) else first for step in wanted]
            host.note_held(self, held[-1])
            runs.append(held[0] if self.last else torch.stack(held, dim=1))
        mediator.iteration = before
        value = runs[0] if self.runs == 1 else torch.stack(runs, dim=1 if self.last else 2)
        return self._fitted(host, value)

    def _pass(self, mediator: Mediator, at: str, count: int) -> torch.Tensor:
        """What stands at the place when it is passed for the count-th time, from 0."""
        mediator.iteration = count
        held: torch.Tensor = self.location.extract(Mediator.value(at)).clone()
        return held

    def __set__(self, obj: Host, value: Any) -> None:
        raise UnavailableValue(
            obj.refusal(self)
            or f"{self.name} is read-only: its place is passed several times, or nothing in this forward reads it."
        )
