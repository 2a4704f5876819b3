"""Work in processes whose faults cost no more than their own task's group."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from probe.workers.crew import Bounds, Watch, run
from probe.workers.inside import Lost

__all__ = ["Bounds", "Lost", "Watch", "memory", "run"]


def memory() -> int:
    """Bytes of memory that this machine, or the container around this process, has."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return total
