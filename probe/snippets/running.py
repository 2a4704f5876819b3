"""Running the blocks of a page: they share a namespace, in order.

It holds ``torch``, ``model``, ``prompt`` and, in a tower's notes, ``image``, which the prompt then has a place for.
"""

from __future__ import annotations

import linecache
from functools import cache
from typing import Any

import torch

from probe.checkpoints import load, resolve
from probe.checkpoints.images import test_image
from probe.prompt import PROMPT
from probe.snippets.code import Block, Subject
from probe.standard import StandardizedTransformer

IMAGE_PROMPT = "<image> What is this?"


@cache
def model(subject: Subject) -> StandardizedTransformer:
    """A twin, or real weights, in float32; each is built once."""
    target = resolve(subject.checkpoint, subject.family, offline=True)
    return StandardizedTransformer(load(target, attn=subject.attn, dtype="float32"))


def run(block: Block, namespace: dict[str, Any]) -> None:
    """Run a block in its page's namespace. Line numbers in what it raises are the page's."""
    namespace.setdefault("torch", torch)
    if namespace.get("__on__") != block.subject:
        namespace.update(
            __on__=block.subject, model=model(block.subject), prompt=IMAGE_PROMPT if block.of_images else PROMPT
        )
        if block.of_images:
            namespace["image"] = test_image()
    padded = "\n" * (block.line - 1) + block.code
    name = f"<{block.path.name}:{block.line}:{hash(block.code)}>"
    linecache.cache[name] = (len(padded), None, padded.splitlines(keepends=True), name)
    with torch.no_grad():
        exec(compile(padded, name, "exec"), namespace)
