"""Experiments: each quirk of a family is the verdict of one, with numbers."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable

from ..measure.run import Run
from ..schema import Experiment
from .base import ERROR, STRICT, Quirk, Verdict, stopped
from .base import some as some
from .registry import QUIRKS

__all__ = ["QUIRKS", "Quirk", "Verdict", "errors", "run_all", "some"]


def run_all(run: Run) -> tuple[list[Experiment], list[Experiment]]:
    """Every experiment on one run: those about the text model, and those about the tower (none without one).

    An experiment that raises is `inconclusive`, and its verdict says what was raised (see :func:`errors`); the others
    run on.
    """
    text = [quirk.record(decide(quirk, run), len(run.text)) for quirk in QUIRKS if quirk.about == "text"]
    if run.vision is None:
        return text, []
    return text, [quirk.record(decide(quirk, run), len(run.vision)) for quirk in QUIRKS if quirk.about == "vision"]


def decide(quirk: Quirk, run: Run) -> Verdict:
    """The verdict of one experiment, also where it raises."""
    try:
        verdict = quirk.run(run)
    except Exception as error:
        if os.environ.get(STRICT):
            raise
        return stopped(quirk, error)
    if _overflowed(verdict.measured):
        load = str(run.dtype).removeprefix("torch.")
        return Verdict("inconclusive", why=f"In this {load} load a number that {quirk.slug} measures overflows.")
    return verdict


def _overflowed(measured: object) -> bool:
    """Whether some number is not finite, which only a load of few bits brings about."""
    if isinstance(measured, dict):
        return any(map(_overflowed, measured.values()))
    if isinstance(measured, list | tuple):
        return any(map(_overflowed, measured))
    return isinstance(measured, float) and not math.isfinite(measured)


def errors(found: Iterable[Experiment]) -> list[str]:
    """The slugs of the experiments that raised instead of answering."""
    return [experiment.slug for experiment in found if ERROR in experiment.measured]
