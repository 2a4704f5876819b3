"""Measuring: what a run of a checkpoint shows, and the record of it.

`probe_target` makes a record, `read_value` reads one value. Both load on first use: experiments build on this package's
parts, and the record on the experiments.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .reading import Reading, read_value
    from .record import probe_target

__all__ = ["Reading", "probe_target", "read_value"]

_HOMES = {"Reading": ".reading", "read_value": ".reading", "probe_target": ".record"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
