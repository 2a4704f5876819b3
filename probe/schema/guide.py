"""What the guide's code came to: a file beside its pages."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .part import Part
from .record import Provenance


class Outcome(Part):
    """One page's code on one checkpoint."""

    family: str
    checkpoint: str
    ran: int = Field(description="blocks of code that ran, in order from the first")
    reason: str | None = Field(None, description="why the next one did not; null where all ran")
    numbers: dict[str, float | None] = Field(
        description="by column; null where the family has nothing to measure there"
    )


class Drawing(Part):
    """The numbers of one picture. It is drawn when the site is built."""

    checkpoint: str
    kind: Literal["grid", "words", "lines", "bars"]
    x: str = Field(description="what runs along x")
    y: str = Field(description="what runs along y, or the unit of the lines or bars")
    ticks: list[str] = Field(description="labels along x")
    grid: list[list[float | None]] = Field([], description="a row for each block, from block 0; null: there is no cell")
    words: list[list[str]] = Field([], description="a word for each cell of the grid, such as the top token")
    marked: str | None = Field(None, description="the word whose cells stand out")
    series: dict[str, list[float]] = Field({}, description="a line, or a row of bars, by its label")
    statement: str = Field(description="one sentence that says what is seen: the picture's text alternative")


class PatternResults(Part):
    """What one page's code came to."""

    code: str = Field(description="sha256 of the page's code when it ran")
    outcomes: list[Outcome]
    drawings: list[Drawing] = []


class GuideResults(Part):
    """Everything that `python -m probe guide` measured."""

    provenance: Provenance
    patterns: dict[str, PatternResults] = Field(description="by the page's name")
