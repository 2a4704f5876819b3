"""A value's native name: its place in the Hugging Face implementation, as ``get_submodule`` and a hook name it."""

from __future__ import annotations

from probe.schema import HfPath

SIDES = {"in": "input", "out": "output", "op": "operation"}
SHORT = {"in": "in", "out": "out", "op": ""}
BLOCK = "{i}"


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
