"""A Ctrl-C that a library catches and drops, as some do while they are imported, still ends the run.

The handler here raises ``KeyboardInterrupt`` as Python's own does, and keeps in mind that it did.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

_heard = False


def _hear(number: int, frame: FrameType | None) -> None:
    global _heard
    _heard = True
    raise KeyboardInterrupt


@contextlib.contextmanager
def remembered() -> Iterator[None]:
    """A Ctrl-C that comes inside is remembered, where the process does not ignore it."""
    global _heard
    _heard = False
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def heed() -> None:
    """Raises KeyboardInterrupt where one came since :func:`remembered` and was dropped."""
    if _heard:
        raise KeyboardInterrupt
