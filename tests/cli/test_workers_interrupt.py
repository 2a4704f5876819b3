"""Ctrl-C is the parent's alone: no worker hears it, the first one no more than the others."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

from probe.workers import Bounds, Watch, run
from tests.conftest import ROOT

PROGRAM = """
from tests.cli import test_workers_interrupt as here

if __name__ == "__main__":
    print(*here.blocked())
"""


def _blocks_interrupts(task: int, progress: Any) -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def _nothing() -> None: ...


def blocked() -> list[bool]:
    """For each of two workers, whether it is deaf to SIGINT."""
    found = run(
        [[0], [1]], _blocks_interrupts, workers=2, bounds=lambda task: Bounds(), prepare=_nothing, watch=Watch()
    )
    return [deaf is True for _, _, deaf in found]


def test_no_worker_hears_an_interrupt() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True True\n", "")
