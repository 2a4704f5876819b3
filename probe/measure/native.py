"""Native paths of modules, with `{i}` for the index of the block that they stand in."""

from __future__ import annotations

import re

import torch

from .run import Run


def in_block(path: str, block: str) -> str:
    """A path with `{i}` for the block's index; that of a module outside of the block stays.

    Args:
        block: the block's own path.
    """
    stem, _, _ = block.rpartition(".")
    inside = path == block or path.startswith(f"{block}.")
    return f"{stem}.{{i}}{path.removeprefix(block)}" if inside else path


def of_any_block(path: str) -> str:
    """A path with `{i}` for each index in it."""
    return re.sub(r"(^|\.)\d+(?=\.|$)", r"\1{i}", path)


def native_path(run: Run, index: int, module: torch.nn.Module) -> str:
    """The path of a module of a text block, or of one beside the blocks."""
    paths = {id(part): path for path, part in run.model._module.named_modules()}
    return in_block(paths[id(module)], paths[id(run.text.envoys[index]._module)])
