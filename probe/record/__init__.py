"""Records: everything that was measured of a checkpoint, put together."""

from .assembled import probe_target

__all__ = ["probe_target"]
