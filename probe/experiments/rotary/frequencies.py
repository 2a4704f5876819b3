"""How fast queries turn: the base of the frequencies, by kind of block, and frequencies that were changed."""

from __future__ import annotations

from collections.abc import Collection

import torch

from ...instruments.extra import layer_types
from ...measure.rounding import digits
from ...measure.run import Run
from ..answers import entry, equal, explain, per_block
from ..base import Measured, Quirk, Verdict, some
from .turning import Rotary, rotaries

RESCALED = 0.05
"""How far a frequency must be from its base's, relative to it, to count as another."""

HALF = "Frequencies are read off in float32 only: in half precision a slow rotation is lost in rounding."


def rope_entries(run: Run, block: int, name: str) -> list[str]:
    """Where a config may hold a rotary number of a block."""
    return [f"rope_parameters.{name}", f"rope_parameters.{layer_types(run)[block]}.{name}"]


def rotary_bases(run: Run) -> Verdict:
    """Fits the base of each block's frequencies: one for all blocks makes the answer no."""
    if run.dtype is not torch.float32:
        return Verdict("inconclusive", why=HALF)
    bases: dict[str, set[float]] = {}
    for index, rotary in enumerate(rotaries(run)):
        base = None if rotary is None else _base(run, index, rotary)
        if base is not None:
            bases.setdefault(layer_types(run)[index], set()).add(base)
    every = sorted(set().union(*bases.values()))
    measured: Measured = {f"base_{kind}": min(found) for kind, found in bases.items() if not _apart(found)}
    names = {f"base_{kind}": [f"rope_parameters.{kind}.rope_theta", "rope_parameters.rope_theta"] for kind in bases}
    if not every:
        return Verdict("n/a", why="No block's frequencies follow a base.")
    return Verdict("yes" if _apart(every) else "no", measured=measured, explained=explain(run, measured, names))


def _apart(bases: Collection[float]) -> bool:
    """Whether fitted bases are more than one number: further apart than a fit is from another."""
    return max(bases) > min(bases) * (1 + RESCALED)


def _base(run: Run, index: int, rotary: Rotary) -> float | None:
    """The base, the config's own number where the fitted one is equal to it."""
    base = rotary.base()
    named = next(
        (
            value
            for path in rope_entries(run, index, "rope_theta")
            if isinstance(value := entry(run, path), (int, float))
        ),
        None,
    )
    return named if base is not None and equal(base, named) else None if base is None else digits(base)


def rescaled_rotary(run: Run) -> Verdict:
    """Each frequency against ``base^(-2i / width)``: a series that starts at one radian a position makes the answer
    no.
    """
    if run.dtype is not torch.float32:
        return Verdict("inconclusive", why=HALF)
    found: list[bool | None] = []
    ratios: list[float] = []
    first = None
    for index, rotary in enumerate(rotaries(run)):
        theta = next(
            (
                value
                for path in rope_entries(run, index, "rope_theta")
                if isinstance(value := entry(run, path), (int, float))
            ),
            None,
        )
        if rotary is None or not rotary.frequencies or theta is None:
            found.append(None)
            continue
        each = enumerate(rotary.frequencies)
        slowed = [theta ** (-2 * pair / rotary.spaced) / speed for pair, speed in each if speed > 0]
        found.append(max(abs(ratio - 1) for ratio in slowed) > RESCALED)
        if found[-1]:
            ratios += slowed
            first = index if first is None else first
    measured: Measured = {}
    if first is not None:
        measured = {"slowed_at_least": digits(min(ratios), 3), "slowed_at_most": digits(max(ratios), 3)}
    names = {} if first is None else {"slowed_at_most": rope_entries(run, first, "factor")}
    return per_block(
        found,
        measured,
        explain(run, measured, names),
        absent="No block's frequencies follow a base that the config names.",
    )


def _bases(measured: Measured, blocks: list[int] | None, total: int) -> str:
    parts = [
        f"{base:,.0f} on {name.removeprefix('base_').replace('_', '-').replace('-attention', '')} blocks"
        for name, base in measured.items()
        if base
    ]
    return f"The rotary base differs between kinds of blocks{': ' if parts else ''}{' and '.join(parts)}."


def _slowed(measured: Measured, blocks: list[int] | None, total: int) -> str:
    most = measured.get("slowed_at_most")
    return (
        f"On {some(blocks or [], total)} rotary frequencies are lower than their base "
        f"gives{f', by a factor of up to {most:g}' if most else ''}."
    )


QUIRKS = (
    Quirk("rotary-bases", "Several rotary bases", "text", rotary_bases, _bases),
    Quirk("rescaled-rotary", "Rescaled rotary", "text", rescaled_rotary, _slowed),
)
