"""What the guide's pages show of what their code came to: tables of outcomes, and pictures."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from markupsafe import Markup

from probe.guide import results
from probe.guide.patterns import PATTERNS, REAL, SUBJECTS, Pattern
from probe.render.guide.drawn import drawn, full, roles
from probe.render.templating import render
from probe.render.text import figure
from probe.schema.guide import Drawing, GuideResults, Outcome


@dataclass(frozen=True)
class Run:
    """A row of a page's table.

    Attributes:
        url: of the family's page; empty where the site has none.
        reason: why the code ended early; empty where all of it ran.
    """

    family: str
    url: str
    checkpoint: str
    ran: str
    cells: list[str]
    reason: str


@dataclass(frozen=True)
class GuideRuns:
    columns: list[str]
    rows: list[Run]
    versions: str


@dataclass(frozen=True)
class GuideFigure:
    """A picture: its checkpoint, its SVG, what is seen, and a role and words for each colour of it."""

    checkpoint: str
    kind: str
    svg: Markup
    statement: str
    key: list[tuple[str, str]]


@dataclass(frozen=True)
class GuidePictures:
    figures: list[GuideFigure]


@dataclass(frozen=True)
class GuideSubjects:
    """What the code ran on. A row: family, its page's url, checkpoint, kind, how many pages' code ran in full."""

    rows: list[tuple[str, str, str, str, str]]
    blocks: int


def included(families: Collection[str]) -> dict[str, str]:
    """Markers in the guide's pages, and what stands there. ``families``: those that have a page."""
    found = results.read()
    made = {"<!-- subjects -->": str(render(_subjects(found, families)))}
    for pattern in PATTERNS:
        made[f"<!-- runs: {pattern.slug} -->"] = str(render(_runs(pattern, found, families)))
        figures = [_figure(drawing) for drawing in found.patterns[pattern.slug].drawings]
        made[f"<!-- pictures: {pattern.slug} -->"] = str(render(GuidePictures(figures)))
    return made


def _figure(drawing: Drawing) -> GuideFigure:
    key = [(role, name) for name, role in roles(drawing).items()]
    if drawing.kind == "grid":
        key = [("attention", f"full colour: {figure(full(drawing))}")]
        if any((number or 0) < -full(drawing) / 20 for row in drawing.grid for number in row):
            key.append(("mark", "below zero"))
    if drawing.kind == "words":
        answer = (drawing.marked or "").strip()
        key = [("attention", f"“{answer}” is on top"), ("flow", "another token is, the stronger the likelier")]
    alternative = f"Measured on {drawing.checkpoint}: {drawing.y} against {drawing.x}. The caption says what is seen."
    return GuideFigure(drawing.checkpoint, drawing.kind, drawn(drawing).svg(alternative), drawing.statement, key)


def _subjects(found: GuideResults, families: Collection[str]) -> GuideSubjects:
    kinds = {(s.family, s.checkpoint): kind for s, kind in SUBJECTS.items()}
    kinds |= {(s.family, s.checkpoint): "published weights" for s in REAL}
    rows = []
    for (family, checkpoint), kind in kinds.items():
        mine = [o for each in found.patterns.values() for o in each.outcomes if _of(o) == (family, checkpoint)]
        full = sum(outcome.reason is None for outcome in mine)
        url = f"../{family}/" if family in families else ""
        rows.append((family, url, checkpoint, kind, "all" if full == len(PATTERNS) else f"{full} of {len(PATTERNS)}"))
    every = sum(outcome.ran for each in found.patterns.values() for outcome in each.outcomes)
    return GuideSubjects(rows, every)


def _runs(pattern: Pattern, found: GuideResults, families: Collection[str]) -> GuideRuns:
    outcomes = found.patterns[pattern.slug].outcomes
    total = max(outcome.ran for outcome in outcomes)
    rows = [
        Run(
            outcome.family,
            f"../../{outcome.family}/" if outcome.family in families else "",
            outcome.checkpoint,
            f"{outcome.ran} of {total}",
            [_cell(outcome.numbers[name]) for name in pattern.columns],
            outcome.reason or "",
        )
        for outcome in outcomes
    ]
    p = found.provenance
    versions = f"torch {p.torch}, transformers {p.transformers}, nnsight {p.nnsight}"
    return GuideRuns(list(pattern.columns.values()), rows, versions)


def _of(outcome: Outcome) -> tuple[str, str]:
    return outcome.family, outcome.checkpoint


def _cell(number: float | None) -> str:
    return "–" if number is None else figure(number)
