"""Measured numbers that a reader would rather see than read: masks, spectra, loads, growth."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .part import Part


class Series(Part):
    """A line of a picture, its dots, or a row of its bars."""

    name: str
    numbers: list[float | None] = Field(description="along x; null where there is nothing to show")


class Picture(Part):
    """The numbers of one drawing. It is drawn when the site is built."""

    name: str = Field(description="unique on its record")
    kind: Literal[
        "mask", "rotary", "load", "growth", "scalars", "slopes", "pattern", "scales", "decay", "passes", "response"
    ]
    label: str = Field(description="its caption")
    quirks: list[str] = Field([], description="slugs of the experiments whose cards show it")
    blocks: list[int] | None = Field(None, description="the blocks it shows; null where it is not a property of blocks")
    axes: list[str] = Field(description="what runs along x and along y, with units")
    series: list[Series] = []
    rows: list[str] | None = Field(
        None,
        description="cells, a query a row from the top: of a mask a character for each key, `1` where the query "
        "reaches it; of a pattern each key's share in percent, apart by spaces",
    )
    step: int = Field(
        1, description="positions from a row, and a cell of it, to the next; pairs from a number to the next"
    )
    marked: dict[str, list[int]] = Field({}, description="stretches of cells, first and last, by what stands there")
    ticks: list[str] | None = Field(None, description="labels along x, where they are not the index")
    statement: str = Field(description="one sentence that says what is seen: the picture's text alternative")
