"""Measuring: what a run of a checkpoint shows. Experiments build on it, and a record on both.

:func:`read_value` reads one value of one run.
"""

from .reading import Reading, read_value

__all__ = ["Reading", "read_value"]
