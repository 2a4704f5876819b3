"""What the guide's code came to, said at the end of the tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from probe.guide.measure import follow
from probe.guide.patterns import Pattern
from probe.schema.guide import Outcome
from probe.snippets.code import Subject

RUN: list[Outcome] = []
"""A page on a subject each."""


@pytest.fixture(scope="session")
def followed() -> Callable[[Pattern, Subject], Outcome]:
    """What a page's code came to on a subject; run once a session."""
    known: dict[tuple[str, Subject], Outcome] = {}

    def run(pattern: Pattern, subject: Subject) -> Outcome:
        key = (pattern.slug, subject)
        if key not in known:
            known[key], _ = follow(pattern, subject)
            RUN.append(known[key])
        return known[key]

    return run


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if RUN:
        families, refused = {outcome.family for outcome in RUN}, [outcome for outcome in RUN if outcome.reason]
        terminalreporter.write_line(
            f"guide: {sum(outcome.ran for outcome in RUN)} blocks of code run, on {len(families)} families; "
            f"{len(refused)} pages end early, each with the family's reason"
        )
