"""What the notes' code came to, said at the end of the tests."""

from __future__ import annotations

from collections import Counter

import pytest

RUN: Counter[str] = Counter()
"""Blocks of code run, by note."""


@pytest.fixture(scope="session")
def counted() -> Counter[str]:
    return RUN


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if RUN:
        families = {name.partition(".")[0] for name in RUN}
        each = ", ".join(f"{name} {count}" for name, count in sorted(RUN.items()))
        terminalreporter.write_line(f"notes: {RUN.total()} blocks of code run, of {len(families)} families ({each})")
