"""What a published checkpoint brings and its class does not build: layers that predict further tokens, and weights
that loading passes over.
"""

from __future__ import annotations

import re

from markupsafe import Markup

from probe.render.know.subject import Subject, code, say
from probe.render.text import plural, prose

FURTHER = re.compile(r"num_\w*(?:nextn|mtp)\w*|mtp_num_\w+")
"""Entries of a config that count layers which predict tokens past the next one."""

BUILT = re.compile(r"\(\w*(?:nextn|mtp)\w*\): ")
"""A module for them, as a model is printed."""

PASSED_OVER = "passed_over_at_loading"
"""The fact that names the weights for which the class has no place."""


def unbuilt(subject: Subject) -> list[Markup]:
    """That layers for further tokens, which the config counts, are not among the modules; and what loading leaves."""
    fact = subject.fact(PASSED_OVER)
    return [*_further(subject), *([prose(fact.statement)] if fact else [])]


def _further(subject: Subject) -> list[Markup]:
    counted = [row for row in subject.record.config if FURTHER.fullmatch(row.name) and _several(row.value)]
    if not counted or BUILT.search(subject.record.printout):
        return []
    text = (
        "The config counts {layers} for tokens past the next one ({entry}), and the class builds none: the model has "
        "the {blocks} that are told here and no module of such a name."
    )
    row = counted[0]
    assert isinstance(row.value, int)
    blocks = plural(subject.total, "block")
    return [
        say(text, layers=plural(row.value, "layer or module", "layers or modules"), entry=code(row.name), blocks=blocks)
    ]


def _several(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
