"""What other tools call the standard values. Declared: read in each tool's published source, and not run.

A name may stand for another tensor than ours, everywhere or on families of some kind; it then says how. The package is
light: the command line and the pages read it.
"""

from __future__ import annotations

import re

from .declared import ABSENT, NAMES, ROTARY, TOOLS, Name, Tool, Unless

__all__ = ["ABSENT", "NAMES", "ROTARY", "TOOLS", "Name", "Tool", "Unless", "called", "of", "same", "standard"]


def of(value: str) -> list[Name]:
    """The names that other tools have for a value, those that stand for the same tensor first."""
    return sorted((name for name in NAMES if name.value == value), key=lambda name: name.differs is not None)


def same(value: str, tool: str) -> str | None:
    """What a tool calls this value, on most families; None where it has no name for it."""
    return next((name.name for name in of(value) if name.tool == tool and name.differs is None), None)


def standard(asked: str) -> Name | None:
    """Whose name was asked for: the whole of it with or without a block's number, its end, or that without `hook_`."""
    wanted = re.sub(r"\[\d+\]", "[i]", re.sub(r"\.\d+(?=\.|$)", ".{i}", asked))
    for name in sorted(NAMES, key=lambda name: name.differs is not None):
        end = name.name.rpartition(".")[2]
        ends = () if end in SHARED else (end, end.removeprefix("hook_"), end.removesuffix("[i]"))
        if wanted in (name.name, name.name.removeprefix("blocks.{i}."), *ends):
            return name
    return None


def called(asked: str, other: Name) -> str:
    """What was asked for is that name's value: the beginning of a sentence."""
    return f"{asked!r} is {other.tool}'s name for {other.value}"


SHARED = {"hook_in", "hook_out", "hook_normalized", "output"}
"""Ends that many modules' names have, so that they tell no value."""
