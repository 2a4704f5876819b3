"""Which tests stay together where they run in several processes.

Those of a file do, since they share its measured twins; so do those of a folder that shares much. Tests that share
nothing and take long are dealt out one by one, last and in their file's order: the longest stand first there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

TOGETHER = ("tests/browser/", "tests/derive/test_mixer", "tests/experiments/", "tests/preview/", "tests/render/")
"""Folders and files whose tests share something costly: a built site, a measured twin."""

APART = ("tests/recipes/test_every_recipe.py", "tests/checkpoints/test_factory.py")


def scope(test: str) -> str:
    """The name of the lot that a test belongs to."""
    if test.startswith(APART):
        return test
    return next((folder for folder in TOGETHER if test.startswith(folder)), test.partition("::")[0])


def scheduler(config: pytest.Config, log: Any) -> Any:
    """Deals the lots to the processes, the largest first."""
    from xdist.scheduler import LoadScopeScheduling

    class Lots(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

    return Lots(config, log)
