"""A value's other names: its place in the Hugging Face implementation, as ``get_submodule`` and a hook name it, and
what other tools call it. A row has room for a whole name, a chip of a diagram for two short lines.
"""

from __future__ import annotations

from probe.schema import HfPath

SIDES = {"in": "input", "out": "output", "op": "operation"}
SHORT = {"in": "in", "out": "out", "op": ""}
BLOCK = "{i}"
LONGEST = 26
"""Most letters of a line in a chip."""

Name = tuple[str, str]
"""A name, and what stands beside it: side and element, or how the tensor differs. In a chip: its two lines."""


def native(hf: HfPath | None) -> tuple[str, str] | None:
    """The whole path, and the side and element in words: ``model.layers.{i}.mlp``, ``output``.

    None where there is no single place.
    """
    if hf is None:
        return None
    element = "" if hf.element is None else f" {hf.element}"
    return hf.path or "the model", SIDES[hf.side] + element


def in_block(hf: HfPath | None) -> tuple[str, str] | None:
    """The same as a diagram of a block has room for: the path below the block, ``block`` for the block itself."""
    if hf is None:
        return None
    _, found, below = hf.path.partition(BLOCK)
    path = (below.removeprefix(".") or "block") if found else hf.path or "the model"
    element = "" if hf.element is None else str(hf.element)
    return path, f"{SHORT[hf.side]} {element}".strip()


def lines(hf: HfPath | None, module: str = "") -> Name | None:
    """The native name on the two lines of a chip: the module or operation, then its side and element.

    Args:
        hf: the place; None where there is no single one.
        module: native path, below the block, of the module in whose box the chip stands; the box says it.
    """
    if hf is None:
        return None
    if hf.side == "op":
        operation, _, side = str(hf.element).rpartition(" > ")[2].partition(" ")
        return shortened(operation), side
    _, found, below = hf.path.partition(BLOCK)
    path = (below.removeprefix(".") or "block") if found else hf.path or "the model"
    element = "" if hf.element is None else f" {hf.element}"
    inside = path.removeprefix(f"{module}.") if module else path
    return shortened(inside), f"{SIDES[hf.side]}{element}"


def tool_lines(name: Name) -> Name:
    """Another tool's name on the lines of a chip: below the block, and how its tensor differs."""
    return shortened(name[0].removeprefix("blocks.{i}.")), name[1]


def shortened(path: str, room: int = LONGEST) -> str:
    """As much of a path's end as there is room for, in letters; whole parts where one fits."""
    if len(path) <= room:
        return path
    parts = path.removeprefix("…").split(".")
    for first in range(1, len(parts)):
        if len(found := "…" + ".".join(parts[first:])) <= room:
            return found
    return "…" + path[1 - room :]
