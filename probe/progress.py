"""A bar on a terminal, plain lines elsewhere, always on stderr.

What works for long takes a callable ``progress(label, share)`` and calls it as it goes: ``label`` says in a few words
what happens now, ``share`` is how much of that work is done, from 0 to 1.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

Progress = Callable[[str, float], None]


def silent(label: str, share: float) -> None:
    """Shows nothing."""


class Bar:
    """Progress over several jobs, each of which may report its own steps.

    Args:
        jobs: how many jobs there are.
        doing: what happens before the first job starts.
    """

    def __init__(self, jobs: int, doing: str) -> None:
        self._jobs = jobs
        self._finished = 0
        self._started = time.monotonic()
        self._bar: Any = None
        if jobs and sys.stderr.isatty():
            from tqdm import tqdm

            layout = "{desc} {percentage:3.0f}%|{bar}| {elapsed}"
            self._bar = tqdm(total=float(jobs), desc=doing, bar_format=layout, file=sys.stderr, leave=False)
        elif jobs:
            self._line(doing)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()

    def within(self, job: str) -> Progress:
        """The callable for the steps of one job."""

        def step(label: str, share: float) -> None:
            self._move(f"{job}: {label}", self._finished + min(share, 1.0))

        return step

    def starts(self, job: str) -> None:
        self._move(job, self._finished)

    def ends(self, job: str, failed: bool = False) -> None:
        self._finished += 1
        if self._bar is None:
            what = f"{job} failed" if failed else job
            self._line(f"{what} ({self._finished}/{self._jobs}, {time.monotonic() - self._started:.0f} s)")
        else:
            self._move(job, self._finished)

    def _move(self, label: str, done: float) -> None:
        if self._bar is not None:
            self._bar.set_description_str(label, refresh=False)
            self._bar.n = max(self._bar.n, done)
            self._bar.refresh()

    @staticmethod
    def _line(text: str) -> None:
        print(text, file=sys.stderr, flush=True)
