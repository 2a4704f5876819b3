"""Numbers that someone typed into prose, where a run or a record could give them."""

from __future__ import annotations

import re

from probe.render.references import REFERENCE
from probe.snippets.code import FENCE, ON

NAMES = re.compile(
    r"\bE[24]B\b|\b\d+B-A\d+B\b|\b\d+(\.\d+)?[BM]\b"  # sizes that are names
    r"|\b(Gemma|Llama|SmolLM2?|GPT|OLMo|Mamba)[ -]?\d?(\.\d)?\b|\b(b?float|q|Q)\d+\b|\b[12]D\b"
)
QUOTED = re.compile(r"(?i:reported for)\b(?:(?!\n\n).)*?\[source: [^\]]+\]", re.S)
"""A figure from elsewhere, from whom it is reported for to its source."""


def typed_numbers(text: str) -> list[str]:
    """Numbers in a note's prose that no block asserts, no record gives and no source is named for."""
    prose = FENCE.sub("", text)
    for pattern in (ON, REFERENCE, QUOTED, re.compile(r"`[^`]*`"), NAMES):
        prose = pattern.sub("", prose)
    return [line.strip() for line in prose.splitlines() if re.search(r"\d", line)]
