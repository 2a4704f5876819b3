"""What tests counted, said at the end of a run, whichever process each test ran in.

A test counts by ``record_property(COUNTED, {"recipes": {"pages": 1, "families": ["llama"]}})``: a line of the summary,
and what to add to it. Of names, the different ones are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

COUNTED = "counted"


def lines(reports: Iterable[pytest.TestReport]) -> list[str]:
    """One line a heading, with what all tests that passed counted."""
    sums: dict[str, dict[str, int | set[str]]] = {}
    for report in reports:
        for name, value in report.user_properties if report.when == "call" else []:
            if name == COUNTED and isinstance(value, dict):
                for heading, counts in value.items():
                    _add(sums.setdefault(heading, {}), counts)
    return [f"{heading}: {_told(sums[heading])}" for heading in sorted(sums) if sums[heading]]


def _add(total: dict[str, int | set[str]], counts: Mapping[str, int | list[str]]) -> None:
    for what, count in counts.items():
        before = total.get(what)
        if isinstance(count, int):
            total[what] = (before if isinstance(before, int) else 0) + count
        else:
            total[what] = (before if isinstance(before, set) else set()) | set(count)


def _told(counts: Mapping[str, int | set[str]]) -> str:
    return ", ".join(f"{n if isinstance(n, int) else len(n):,} {what}" for what, n in counts.items())
