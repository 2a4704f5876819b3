"""Experiments: each quirk of a family is the verdict of one, with numbers."""

from __future__ import annotations

from ..measure.run import Run
from ..schema import Experiment
from .base import Quirk, Verdict, some
from .registry import QUIRKS

__all__ = ["QUIRKS", "Quirk", "Verdict", "run_all", "some"]


def run_all(run: Run) -> tuple[list[Experiment], list[Experiment]]:
    """Every experiment on one run: those about the text model, and those about the tower (none without one)."""
    text = [quirk.record(quirk.run(run), len(run.text)) for quirk in QUIRKS if quirk.about == "text"]
    if run.vision is None:
        return text, []
    return text, [quirk.record(quirk.run(run), len(run.vision)) for quirk in QUIRKS if quirk.about == "vision"]
