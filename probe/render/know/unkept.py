"""Equations between values that most families keep and this one does not."""

from __future__ import annotations

from markupsafe import Markup

from probe.render.know.subject import Subject, of_run


def unkept(subject: Subject) -> list[Markup]:
    """One sentence an equation, with how far its two sides are apart and on which blocks of the run."""
    return [of_run(subject, fact.statement) for fact in subject.facts if fact.name.startswith("unkept_")]
