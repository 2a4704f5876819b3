"""Equations between values that most families keep and this one does not."""

from __future__ import annotations

import re

from markupsafe import Markup

from probe.render.know.subject import Subject
from probe.render.text import prose, some_blocks
from probe.schema import Fact

BLOCKS = re.compile(r"on blocks \[([\d, ]+)\]")


def unkept(subject: Subject) -> list[Markup]:
    """One sentence an equation, with how far its two sides are apart and on which blocks."""
    found = [fact for fact in subject.facts if fact.name.startswith("unkept_")]
    return [prose(in_words(subject, fact)) for fact in found]


def in_words(subject: Subject, fact: Fact) -> str:
    """The fact's statement with its blocks as pages write them."""
    total = len(subject.run.blocks) if subject.run else 0
    return BLOCKS.sub(lambda _: f"on {some_blocks(broken_on(fact), total)}", fact.statement)


def broken_on(fact: Fact) -> list[int]:
    """The blocks of the run on which an equation does not hold; empty where it is none of blocks."""
    blocks = fact.measured.get("blocks")
    if isinstance(blocks, list):
        return [block for block in blocks if isinstance(block, int)]
    found = BLOCKS.search(fact.statement)
    return [int(number) for number in found[1].split(",")] if found else []
