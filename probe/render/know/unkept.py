"""Equations between values that most families keep and this one does not."""

from __future__ import annotations

import re

from markupsafe import Markup

from probe.render.know.subject import Subject
from probe.render.text import prose, some_blocks

BLOCKS = re.compile(r"on blocks \[([\d, ]+)\]")


def unkept(subject: Subject) -> list[Markup]:
    """One sentence an equation, with how far its two sides are apart and on which blocks."""
    total = len(subject.run.blocks) if subject.run else 0

    def written(match: re.Match[str]) -> str:
        return f"on {some_blocks([int(number) for number in match[1].split(',')], total)}"

    found = [fact.statement for fact in subject.facts if fact.name.startswith("unkept_")]
    return [prose(BLOCKS.sub(written, statement)) for statement in found]
