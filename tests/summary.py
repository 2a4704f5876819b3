"""What tests counted, said at the end of a run, whichever process each test ran in.

A test counts by ``record_property(COUNTED, {"recipes": {"pages": 1}})``: a line of the summary, and what to add to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

COUNTED = "counted"


def lines(reports: Iterable[pytest.TestReport]) -> list[str]:
    """One line a heading, with the sums over all tests that passed."""
    sums: dict[str, Counter[str]] = {}
    for report in reports:
        for name, value in report.user_properties if report.when == "call" else []:
            if name == COUNTED and isinstance(value, dict):
                for heading, counts in value.items():
                    sums.setdefault(heading, Counter()).update(counts)
    told = {heading: ", ".join(f"{n:,} {what}" for what, n in counts.items()) for heading, counts in sums.items()}
    return [f"{heading}: {words}" for heading, words in sorted(told.items()) if words]
