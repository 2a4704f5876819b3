"""Series of a picture that would hide each other, as one."""

from __future__ import annotations

import math

from probe.schema import Picture, Series

STACKED = frozenset({"load"})
"""The kinds whose series have a row each and hide nothing."""

CLOSE = 0.005
"""How far two numbers may be apart, relative to the larger, to be drawn on the same spot."""


def distinct(picture: Picture) -> Picture:
    """The picture, with one series under all their names for those whose numbers are the same to the eye."""
    if picture.kind in STACKED:
        return picture
    groups: list[list[Series]] = []
    for series in picture.series:
        alike = next((group for group in groups if _alike(group[0].numbers, series.numbers)), None)
        if alike is None:
            groups.append([series])
        else:
            alike.append(series)
    if len(groups) == len(picture.series):
        return picture
    merged = [Series(name=", ".join(s.name for s in group), numbers=group[0].numbers) for group in groups]
    return picture.model_copy(update={"series": merged})


def _alike(one: list[float | None], other: list[float | None]) -> bool:
    return len(one) == len(other) and all(
        a is b if a is None or b is None else math.isclose(a, b, rel_tol=CLOSE) for a, b in zip(one, other, strict=True)
    )
