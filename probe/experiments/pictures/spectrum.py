"""The rotary's spectrum: how fast each pair of a head's dimensions turns, and which do not."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ...measure.rounding import digits
from ...measure.run import Run
from ...schema import Picture, Series
from ..base import some
from ..rotary.turning import Rotary, rotaries

QUIRKS = [
    "nope-blocks",
    "partial-rotary",
    "proportional-rotary",
    "interleaved-rotary",
    "multimodal-rotary",
    "rotary-bases",
    "rescaled-rotary",
]
MOST = 4
"""Most spectra of one model that are shown."""

SHOWN = 32
"""Most pairs of a spectrum; of more, those at equal steps are shown."""

CLOSE = 0.02
"""How far two blocks' speeds of a pair may be apart, relative to them, to count as one."""


Speeds = tuple[float | None, ...]
"""The angle a position of each pair of a head's dimensions, in their order; None for a pair that does not turn, NaN for
one that turns at a speed that was not seen.
"""


def pictures(run: Run) -> list[Picture]:
    """One picture with a series for each spectrum; none where no head turns, or in half precision, which hides it."""
    if run.dtype is not torch.float32:
        return []
    every = [None if rotary is None else pairs(rotary) for rotary in rotaries(run)]
    groups = [group for group in grouped(every) if not any(map(_unseen, group[0]))][:MOST]
    if not any(speed is not None for speeds, _ in groups for speed in speeds):
        return []
    total = len(run.text)
    sentence = "; ".join(f"on {some(blocks, total)} {_said(speeds)}" for speeds, blocks in groups)
    step = -(-max(len(speeds) for speeds, _ in groups) // SHOWN)
    return [
        Picture(
            name="rotary",
            kind="rotary",
            label="How fast each pair of a head’s dimensions turns",
            quirks=QUIRKS,
            blocks=sorted(index for _, blocks in groups for index in blocks),
            axes=["pair of dimensions", "radians a position"],
            series=[Series(name=some(blocks, total), numbers=_rounded(speeds[::step])) for speeds, blocks in groups],
            step=step,
            statement=f"{sentence[:1].upper()}{sentence[1:]}.",
        )
    ]


def pairs(rotary: Rotary) -> Speeds | None:
    """The speeds of one block's pairs; None where dimensions turn in no pairs that are known."""
    if rotary.turning and not rotary.frequencies:
        return None
    rest: Speeds = (None,) * (rotary.width // 2 - len(rotary.frequencies))
    return (*rest, *rotary.frequencies) if rotary.extent == "trailing" else (*rotary.frequencies, *rest)


def grouped(every: Sequence[Speeds | None]) -> list[tuple[Speeds, list[int]]]:
    """The blocks of one spectrum each, whose blocks tell of one another's pairs that were not seen."""
    groups: list[tuple[Speeds, list[int]]] = []
    for index, speeds in enumerate(every):
        if speeds is None:
            continue
        for place, (known, blocks) in enumerate(groups):
            if len(known) == len(speeds) and all(map(_alike, known, speeds)):
                merged = tuple(b if _unseen(a) else a for a, b in zip(known, speeds, strict=True))
                groups[place] = (merged, [*blocks, index])
                break
        else:
            groups.append((speeds, [index]))
    return groups


def _alike(one: float | None, other: float | None) -> bool:
    """Whether two speeds of a pair may be one: both turn or neither does, and as fast where both were seen."""
    if one is None or other is None:
        return one is other
    return _unseen(one) or _unseen(other) or math.isclose(one, other, rel_tol=CLOSE)


def _unseen(speed: float | None) -> bool:
    return speed is not None and math.isnan(speed)


def _rounded(speeds: Speeds) -> list[float | None]:
    return [None if speed is None else digits(speed, 3) for speed in speeds]


def _said(speeds: Speeds) -> str:
    known = [speed for speed in speeds if speed is not None]
    if not known:
        return "no pair turns"
    part = "all" if len(known) == len(speeds) else str(len(known))
    return f"{part} of {len(speeds)} pairs turn, by {max(known):.3g} down to {min(known):.3g} radians a position"
