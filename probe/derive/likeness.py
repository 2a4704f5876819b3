"""How like two models of one class are, module by module and config by config: a build from a config and a tiny twin.

On meta nothing runs, so a record of a published config claims only what a twin of the same classes and block shapes
showed. A block of the checkpoint that no block of the twin is built like is no evidence, and the twin is not used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

Signature = tuple[Any, ...]

NOT_FLAGS = frozenset(
    "torch_dtype dtype transformers_version model_type architectures name_or_path _name_or_path tokenizer_class".split()
)

NUMBER = "a number"
"""What stands for every number of a config: a size."""


@dataclass(frozen=True)
class Stackwise:
    """Block by block, how a stack is built: equal signatures mean equal module trees and layer types.

    ``flags`` are what the modules of each block say of themselves that is no size.
    """

    signatures: tuple[Signature, ...]
    flags: tuple[frozenset[tuple[str, str, Any]], ...]


def built(blocks: Sequence[Any], layer_types: Sequence[str]) -> Stackwise:
    """The signature of each block: its layer type, and the path, class and parameter names of every module in it."""
    return Stackwise(
        tuple((kind, signature(block._module)) for block, kind in zip(blocks, layer_types, strict=True)),
        tuple(said(block._module) for block in blocks),
    )


def said(block: torch.nn.Module) -> frozenset[tuple[str, str, Any]]:
    """What a block's modules say of themselves: attributes that are true, false, 0, 1 or a word, and whether there is a
    window or a chunk."""
    found: set[tuple[str, str, Any]] = set()
    for path, module in block.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, (bool, str)) or (value in (0, 1) and "idx" not in name and "index" not in name):
                found.add((path, name, value))
            elif "window" in name or "chunk" in name:
                found.add((path, name, value is not None))
    return frozenset(found)


def signature(block: torch.nn.Module) -> Signature:
    """What two blocks share that are built alike: the path, class and parameter names of every module in them.

    How many members a list has is a size (one a head, an expert, a block that shares this one), so that the members of
    one kind count once.
    """
    found = {
        (
            re.sub(r"\.\d+(?=\.|$)", ".#", path),
            type(module).__name__,
            tuple(sorted([*dict(module.named_parameters(recurse=False)), *dict(module.named_buffers(recurse=False))])),
        )
        for path, module in block.named_modules()
    }
    return tuple(sorted(found))


def covered(checkpoint: Stackwise, twin: Stackwise) -> list[int] | None:
    """For each block of the checkpoint the likest block of the twin built like it, or None if one has no such block."""
    found = []
    for signature, flags in zip(checkpoint.signatures, checkpoint.flags, strict=True):
        alike = [index for index, other in enumerate(twin.signatures) if other == signature]
        if not alike:
            return None
        found.append(max(alike, key=lambda index: (len(flags & twin.flags[index]), -index)))
    return found


def flags(left: Any, right: Any) -> tuple[int, list[str]]:
    """How many entries of two configs that are no sizes agree, and those that do not, in words.

    A size differs only from none.
    """
    mine, theirs = dict(_entries(left.to_dict())), dict(_entries(right.to_dict()))
    same, differs = 0, []
    for name in sorted(set(mine) | set(theirs)):
        a, b = mine.get(name), theirs.get(name)
        if NUMBER in (a, b):
            if name in mine and name in theirs and a != b:
                differs.append(f"{name} is {a}, on the twin {b}")
        elif a == b:
            same += 1
        elif name.rsplit(".", 1)[-1] not in NOT_FLAGS:
            differs.append(f"{name} is {a!r}, on the twin {b!r}")
    return same, differs


def _entries(config: dict[str, Any], prefix: str = "") -> Any:
    for name, value in config.items():
        if isinstance(value, dict):
            if name not in ("audio_config", "auto_map", "id2label", "label2id", "transformers.js_config"):
                yield from _entries(value, f"{prefix}{name}.")
        elif not name.endswith(("_id", "_index")):
            if isinstance(value, bool) or value is None or isinstance(value, str):
                yield f"{prefix}{name}", value
            elif isinstance(value, (int, float)):
                yield f"{prefix}{name}", NUMBER
