"""The Python in a page's Markdown: its fences, in order, and what each runs on.

A block is a fence marked ``python``. In a family's notes ``<!-- on: … -->`` names the checkpoint; the guide's pages run
on several, which are named from outside.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.S | re.M)
ON = re.compile(r"^<!-- on: (?:(?P<family>\w+) )?(?P<checkpoint>[^\s>]+?)(?: under (?P<attn>\w+))? -->$", re.M)
"""The line that names the checkpoint, and the attention implementation where it is not eager."""


@dataclass(frozen=True)
class Subject:
    """What a block runs on."""

    family: str
    checkpoint: str
    attn: str = "eager"

    @property
    def real(self) -> bool:
        return "/" in self.checkpoint


@dataclass(frozen=True)
class Block:
    """One fence of Python: its file, the line its code starts on, and what it runs on."""

    path: Path
    line: int
    code: str
    subject: Subject

    @property
    def of_images(self) -> bool:
        return self.path.name.endswith(".vision.md")

    def __str__(self) -> str:
        return f"{self.path.name}:{self.line} on {self.subject.checkpoint}"

    def asserts(self) -> bool:
        """Whether a wrong claim could fail here: an assertion, or an exception that is expected."""
        return any(
            isinstance(node, ast.Assert)
            or (isinstance(node, ast.Attribute) and node.attr in ("assert_close", "raises"))
            for node in ast.walk(ast.parse(self.code))
        )


def blocks(path: Path, text: str | None = None, subject: Subject | None = None) -> list[Block]:
    """The blocks of a page, or of ``text`` in its place, on ``subject`` or on what the markers before them name.

    Raises:
        ValueError: no marker stands before the first block, and no subject is given.
    """
    text = path.read_text(encoding="utf-8") if text is None else text
    found = []
    for fence in FENCE.finditer(text):
        if fence["language"] == "python":
            line = text.count("\n", 0, fence.start("code")) + 1
            found.append(Block(path, line, fence["code"], subject or _marked(path, text, fence.start())))
    return found


def _marked(path: Path, text: str, end: int) -> Subject:
    """What the last marker before ``end`` names, of the family that the file is named after."""
    markers = list(ON.finditer(text, 0, end))
    if not markers:
        raise ValueError(f"{path.name}: no `<!-- on: … -->` stands before its first code")
    family = markers[-1]["family"] or path.name.partition(".")[0]
    return Subject(family, markers[-1]["checkpoint"], markers[-1]["attn"] or "eager")
