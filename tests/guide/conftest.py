"""What the guide's code comes to on a subject, run once a session."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from probe.guide.measure import follow
from probe.guide.patterns import Pattern
from probe.schema.guide import Outcome
from probe.snippets.code import Subject


@pytest.fixture(scope="session")
def followed() -> Callable[[Pattern, Subject], Outcome]:
    """What a page's code came to on a subject."""
    known: dict[tuple[str, Subject], Outcome] = {}

    def run(pattern: Pattern, subject: Subject) -> Outcome:
        key = (pattern.slug, subject)
        if key not in known:
            known[key], _ = follow(pattern, subject)
        return known[key]

    return run
