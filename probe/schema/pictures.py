"""Measured numbers that a reader would rather see than read: masks, spectra, loads, growth."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .part import Part


class Picture(Part):
    """The numbers of one drawing. It is drawn when the site is built."""

    name: str = Field(description="unique on its record")
    kind: Literal["mask", "rotary", "load", "growth", "scalars", "pattern"]
    label: str = Field(description="its caption")
    quirks: list[str] = Field([], description="slugs of the experiments whose cards show it")
    blocks: list[int] | None = Field(None, description="the blocks it shows; null where it is not a property of blocks")
    axes: list[str] = Field([], description="what runs along x and along y, with units")
    series: dict[str, list[float | None]] = Field({}, description="a line or a row of bars each, by its label")
    grid: list[list[float]] | None = Field(None, description="rows from the top, for a picture of cells")
    ticks: list[str] | None = Field(None, description="labels along x, where they are not the index")
    statement: str = Field(description="one sentence that says what is seen: the picture's text alternative")
