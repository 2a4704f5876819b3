"""Measuring: what a run of a checkpoint shows, and the record of it."""

from __future__ import annotations

from .reading import Reading, read_value
from .record import probe_target

__all__ = ["Reading", "probe_target", "read_value"]
