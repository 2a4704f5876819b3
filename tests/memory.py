"""Lets go of what tests measured once and share, where the next test is of another file or folder.

A measured twin holds its weights and every tensor of its run; all of them together would fill a small machine.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path


def let_go(left: Path) -> None:
    """Empty the caches of the test modules below a folder, or of the module that a file holds."""
    for module in list(sys.modules.values()):
        place = getattr(module, "__file__", None)
        if place is not None and Path(place).is_relative_to(left):
            for held in list(vars(module).values()):
                if hasattr(held, "cache_clear") and held.__module__ == module.__name__:
                    held.cache_clear()
    gc.collect()


def between(test: Path, following: Path | None) -> Path | None:
    """What is left behind by going from a test's file to that of the following one: a folder, a file, or nothing."""
    if following == test:
        return None
    return test if following is not None and following.parent == test.parent else test.parent
