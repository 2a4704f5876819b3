"""Inside a worker: serve tasks until the pipe is closed, within limits, and leave a trace where it ends badly."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from probe.progress import Progress

ASK = signal.SIGUSR1
"""Has a worker write down where it is."""


@dataclass(frozen=True)
class Lost:
    """Why a task gave no result.

    Attributes:
        message: what became of it, as the end of a sentence.
        trace: where its process was then, as far as it could still tell.
        overran: whether it ran longer than it may.
        given_up: whether it was not run at all, since another of its group was lost.
    """

    message: str
    trace: str = ""
    overran: bool = False
    given_up: bool = False


def serve(pipe: Connection, notes: str, work: Callable[[Any, Progress], Any], prepare: Callable[[], object]) -> None:
    """Answer each task with its result.

    Args:
        notes: file for the traces of a crash, and of what is asked by `ASK`.
        work: what to do with a task.
        prepare: called first, for what all tasks need.
    """
    threading.Thread(target=_follow_parent, daemon=True).start()
    _be_first_to_go()
    with open(notes, "w") as stream:
        faulthandler.enable(stream)
        faulthandler.register(ASK, stream)
        with contextlib.suppress(Exception):  # the work itself will tell
            prepare()
        pipe.send(("ready",))
        while True:
            try:
                task, memory = pipe.recv()
            except (EOFError, OSError):
                return
            _limit_memory(memory)
            try:
                result = work(task, lambda label, share: pipe.send(("step", label, share)))
            except Exception as error:
                result = Lost(f"{type(error).__name__}: {error}", traceback.format_exc())
            pipe.send(("done", result))


def _follow_parent() -> None:
    """End with the parent process, however that ends."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _be_first_to_go() -> None:
    """Where memory runs out, Linux ends this process before the one that reports it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("800")


def _limit_memory(most: int | None) -> None:
    import resource

    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    wanted = hard if most is None else most if hard == resource.RLIM_INFINITY else min(most, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
