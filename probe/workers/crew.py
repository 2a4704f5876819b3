"""The crew: worker processes that take tasks, of which a crash, a hang or exhausted memory costs its own group alone.

Tasks come in groups (a family's checkpoints), since what one task of a group has computed helps the next: a worker
stays with its group, and helps with another's only where no group is left to begin. Workers are started once and take
task after task; one that died or ran over a limit is replaced, and the rest of its group is given up.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Generic, TypeVar

from probe.progress import Progress
from probe.workers.inside import ASK, Lost, serve

T = TypeVar("T")
R = TypeVar("R")

START = 300.0
"""Seconds that a worker has for its start and imports."""


@dataclass(frozen=True)
class Bounds:
    """What one task may take; None is no limit.

    Attributes:
        seconds: from its start, the worker's own start and imports aside.
        memory: bytes of private data of its process.
    """

    seconds: float | None = None
    memory: int | None = None


@dataclass(frozen=True)
class Watch(Generic[T]):
    """Who is told how the work goes: a task that starts, and the steps within it."""

    starts: Callable[[T], object] = lambda task: None
    steps: Callable[[T, str, float], object] = lambda task, label, share: None


def run(
    groups: Sequence[Sequence[T]],
    work: Callable[[T, Progress], R],
    *,
    workers: int,
    bounds: Callable[[T], Bounds],
    prepare: Callable[[], object],
    watch: Watch[T],
) -> Generator[tuple[int, T, R | Lost], None, None]:
    """Every task with its group's index and what became of it, as soon as it is done; a group's tasks begin in order.

    Args:
        work: what to do with a task; importable, as its process is a new one, and so is `prepare`, which each worker
            calls first, for what all tasks need.
    """
    crew = _Crew([deque(group) for group in groups], work, prepare, watch)
    with tempfile.TemporaryDirectory(prefix="probe-") as folder, contextlib.closing(crew):
        yield from crew.run(workers, bounds, Path(folder))


@dataclass
class _Worker(Generic[T]):
    process: Any
    pipe: Connection
    notes: Path
    ready: bool = False
    group: int = -1
    task: T | None = None
    bounds: Bounds = field(default_factory=Bounds)
    deadline: float = float("inf")

    def allow(self, seconds: float | None) -> None:
        self.deadline = float("inf") if seconds is None else time.monotonic() + seconds


class _Crew(Generic[T, R]):
    def __init__(
        self,
        waiting: list[deque[T]],
        work: Callable[[T, Progress], R],
        prepare: Callable[[], object],
        watch: Watch[T],
    ) -> None:
        self._waiting = waiting
        self._begun = [False] * len(waiting)
        self._job = (work, prepare)
        self._watch = watch
        self._workers: list[_Worker[T]] = []

    def close(self) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()

    def run(self, count: int, bounds: Callable[[T], Bounds], folder: Path) -> Iterator[tuple[int, T, R | Lost]]:
        started = 0
        while True:
            for worker in [worker for worker in self._workers if worker.task is None]:
                self._give(worker, bounds)
            while len(self._workers) < count and self._next(-1) is not None:
                self._workers.append(_start(folder / str(started), *self._job))
                self._give(self._workers[-1], bounds)
                started += 1
            if not self._workers:
                return
            soonest = min(worker.deadline for worker in self._workers)
            ready = wait(
                [worker.pipe for worker in self._workers],
                None if soonest == float("inf") else max(0.0, soonest - time.monotonic()),
            )
            for worker in list(self._workers):
                if worker.pipe in ready:
                    yield from self._hear(worker)
                elif time.monotonic() >= worker.deadline:
                    yield from self._lose(worker, overran=True)

    def _next(self, group: int) -> int | None:
        """The group whose task a worker of that group takes next; None where none is left for it."""
        if group >= 0 and self._waiting[group]:
            return group
        fresh = (i for i, tasks in enumerate(self._waiting) if tasks and not self._begun[i])
        longest = max(range(len(self._waiting)), key=lambda i: len(self._waiting[i]), default=None)
        return next(fresh, longest if longest is not None and len(self._waiting[longest]) > 1 else None)

    def _give(self, worker: _Worker[T], bounds: Callable[[T], Bounds]) -> None:
        """Hand a worker its next task, or let it go."""
        group = self._next(worker.group)
        if group is None:
            worker.pipe.close()
            worker.process.join()
            self._workers.remove(worker)
            return
        own = group == worker.group or not self._begun[group]
        task = self._waiting[group].popleft() if own else self._waiting[group].pop()
        self._begun[group] = True
        worker.group, worker.task, worker.bounds = group, task, bounds(task)
        worker.allow(worker.bounds.seconds if worker.ready else START)
        self._watch.starts(task)
        with contextlib.suppress(OSError):  # a worker that died meanwhile is found by its silence
            worker.pipe.send((task, worker.bounds.memory))

    def _hear(self, worker: _Worker[T]) -> Iterator[tuple[int, T, R | Lost]]:
        assert worker.task is not None
        try:
            said, *rest = worker.pipe.recv()
        except (EOFError, OSError):
            yield from self._lose(worker)
            return
        if said == "ready":
            worker.ready = True
            worker.allow(worker.bounds.seconds)
        elif said == "step":
            self._watch.steps(worker.task, *rest)
        else:
            group, task, worker.task = worker.group, worker.task, None
            yield group, task, rest[0]

    def _lose(self, worker: _Worker[T], overran: bool = False) -> Iterator[tuple[int, T, R | Lost]]:
        """Give up a worker, its task, and what waits of its group."""
        assert worker.task is not None
        if overran:
            _ask_where(worker)
        else:
            worker.process.join(5)
        worker.process.kill()
        worker.process.join()
        self._workers.remove(worker)
        said = _ended(worker.process.exitcode)
        if overran:
            said = f"it ran longer than {worker.bounds.seconds if worker.ready else START:.0f} s"
        trace = worker.notes.read_text(errors="replace") if worker.notes.is_file() else ""
        yield worker.group, worker.task, Lost(said, trace, overran)
        given_up, self._waiting[worker.group] = self._waiting[worker.group], deque()
        for task in given_up:
            yield worker.group, task, Lost("it was not run after that", given_up=True)


def _start(notes: Path, work: Callable[[Any, Progress], Any], prepare: Callable[[], object]) -> _Worker[Any]:
    """A new worker, which does not hear Ctrl-C: that is its parent's alone."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there, str(notes), work, prepare), daemon=True)
    resource_tracker.ensure_running()  # which starts with the first process otherwise, and lets SIGINT through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    there.close()
    return _Worker(process, here, notes)


def _ask_where(worker: _Worker[Any]) -> None:
    """Let a worker that ran too long write down where it is."""
    if not worker.notes.is_file():
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker.process.pid, ASK)
    waited = time.monotonic() + 2
    while not worker.notes.stat().st_size and time.monotonic() < waited:
        time.sleep(0.02)


def _ended(status: int) -> str:
    if status == -signal.SIGKILL:
        return "its process was killed, perhaps for want of memory"
    if status < 0:
        return f"its process crashed ({signal.Signals(-status).name})"
    return f"its process ended with status {status}"
