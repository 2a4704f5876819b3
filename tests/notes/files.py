"""The code of the notes: found in the Markdown, and run as a reader would run it.

A block is a fence marked ``python``. Blocks of one file share a namespace, in order, with ``torch``, ``model``,
``prompt`` and, in a tower's notes, ``image``, which the prompt then holds a place for. ``<!-- on: … -->`` names the
checkpoint.
"""

from __future__ import annotations

import ast
import linecache
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from probe.checkpoints import load, resolve
from probe.checkpoints.images import test_image as make_image
from probe.render.references import ON
from probe.standard import StandardizedTransformer

ROOT = Path(__file__).resolve().parents[2]
NOTES = sorted((ROOT / "families").glob("*.md"))

PROMPT = "The Eiffel Tower is in the city of"
IMAGE_PROMPT = "<image> What is this?"

FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.S | re.M)


@dataclass(frozen=True)
class Block:
    """One fence of Python: its file, the line its code starts on, and what it runs on."""

    path: Path
    line: int
    code: str
    checkpoint: str
    attn: str

    @property
    def family(self) -> str:
        return self.path.name.partition(".")[0]

    @property
    def of_images(self) -> bool:
        return self.path.name.endswith(".vision.md")

    @property
    def real(self) -> bool:
        return "/" in self.checkpoint

    def __str__(self) -> str:
        return f"{self.path.name}:{self.line} on {self.checkpoint}"

    def asserts(self) -> bool:
        """Whether a wrong claim could fail here: an assertion, or an exception that is expected."""
        return any(
            isinstance(node, ast.Assert)
            or (isinstance(node, ast.Attribute) and node.attr in ("assert_close", "raises"))
            for node in ast.walk(ast.parse(self.code))
        )


def blocks(path: Path, text: str | None = None) -> list[Block]:
    """The blocks of a note, or of ``text`` in its place."""
    text = path.read_text(encoding="utf-8") if text is None else text
    found = []
    for fence in FENCE.finditer(text):
        if fence["language"] == "python":
            markers = list(ON.finditer(text, 0, fence.start()))
            assert markers, f"{path.name}: no `<!-- on: … -->` stands before its first code"
            line = text.count("\n", 0, fence.start("code")) + 1
            last = markers[-1]
            found.append(Block(path, line, fence["code"], last["checkpoint"], last["attn"] or "eager"))
    return found


@cache
def model(family: str, checkpoint: str, attn: str) -> StandardizedTransformer:
    """A twin, or real weights, in float32; each is built once."""
    return StandardizedTransformer(load(resolve(checkpoint, family, offline=True), attn=attn, dtype="float32"))


def run(block: Block, namespace: dict[str, Any]) -> None:
    """Run a block in its file's namespace. Line numbers in what it raises are the note's."""
    namespace.setdefault("torch", torch)
    subject = (block.checkpoint, block.attn)
    if namespace.get("__on__") != subject:
        loaded = model(block.family, *subject)
        namespace.update(__on__=subject, model=loaded, prompt=IMAGE_PROMPT if block.of_images else PROMPT)
        if block.of_images:
            namespace["image"] = make_image()
    padded = "\n" * (block.line - 1) + block.code
    name = f"<{block.path.name}:{block.line}:{hash(block.code)}>"
    linecache.cache[name] = (len(padded), None, padded.splitlines(keepends=True), name)
    with torch.no_grad():
        exec(compile(padded, name, "exec"), namespace)
