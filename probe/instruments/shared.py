"""A forward that several experiments take part in.

Each says what it sets up before the forward and what it makes of it afterwards, and is asked for that by its name. The
forward runs at most once for a :class:`~probe.measure.run.Run`, with all who take part; where one of them fails, each
that is asked for runs in a forward of its own, so that only who is at fault raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from ..measure.run import Run
from .extra import once

Part = TypeVar("Part")


class Shared(Generic[Part]):
    """A forward that is shared.

    Args:
        forward: runs it with some of those who take part, and gives what came of each.
    """

    def __init__(self, forward: Callable[[Run, Sequence[Part]], list[Any]]) -> None:
        self._forward = forward
        self._parts: list[Part] = []
        self._together = once(self._with_all)

    def join(self, part: Part) -> Callable[[Run], Any]:
        """Takes part in every forward from now on; gives what came of it, by run."""
        place = len(self._parts)
        self._parts.append(part)

        @once
        def came_of(run: Run) -> Any:
            every = self._together(run)
            return every[place] if place < len(every) else self._forward(run, [part])[0]

        return came_of

    def _with_all(self, run: Run) -> list[Any]:
        try:
            return self._forward(run, self._parts)
        except Exception:
            return []  # who is at fault raises again when it runs alone
