"""Between which wavelengths a rotary's frequencies are lowered, where they are lowered by how far a pair has turned.

The module that makes them is built anew from a copy of the config, with heads so wide that neighbouring pairs turn
nearly alike, a longer training length than a twin's, and numbers of which no two are alike, so that each is known by
what it does. Each pair's angle is compared with that of the base.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch

from ...measure.run import Run
from ...schema import Fact
from ...wording import scaled_wavelengths
from ..answers import entry
from .modules import rotary_modules, turned

WIDTHS = ("head_dim", "qk_rope_head_dim")
"""Entries of a config of which one is the width that turns."""

WIDE = 4096
LENGTH = 8192
"""Entries of the copy: the width of a head, and the training length."""

APART = 0.03
"""By how much more than the one before it each number of the copy is multiplied."""

SAME = 2e-4
"""How far two ratios of frequencies may be apart, relative to them, to be one."""

ROPE = "rope_parameters"
TRAINED = "original_max_position_embeddings"


def scaling_facts(run: Run) -> list[Fact]:
    """The two wavelengths as the config's entries give them; nothing where they are no such quotients."""
    try:
        slowed = _slowed(run)
    except (TypeError, ValueError, KeyError, AttributeError, RuntimeError):  # a class or config that takes no such copy
        return []
    if slowed is None:
        return []
    waves, ratios, named = slowed
    most = max(ratios)
    kept = next((place for place, ratio in enumerate(ratios) if abs(ratio - 1) > SAME), len(ratios))
    full = len(ratios) - next(
        (place for place, ratio in enumerate(reversed(ratios)) if abs(ratio / most - 1) > SAME), len(ratios)
    )
    if most < 1 + SAME or not 0 < kept < full < len(ratios):
        return []
    low, high = _between(waves, kept, named), _between(waves, full, named)
    factor = next((name for name, value in named.items() if abs(value / most - 1) < SAME), None)
    if low is None or high is None or low == high or factor is None:
        return []
    return [
        Fact(
            name="rotary_scaling",
            label="Wavelengths that are scaled",
            value=entry(run, f"{ROPE}.{factor}"),
            measured={"kept_below": f"{TRAINED} / {low}", "divided_beyond": f"{TRAINED} / {high}", "by": factor},
            statement=scaled_wavelengths(f"`{TRAINED}` / `{low}`", f"`{TRAINED}` / `{high}`", f"`{factor}`"),
        )
    ]


def _slowed(run: Run) -> tuple[list[float], list[float], dict[str, float]] | None:
    """The wavelengths of the base's pairs in positions, what each one's frequency is divided by, and the numbers of the
    copy of the config.
    """
    theta = entry(run, f"{ROPE}.rope_theta")
    for _, module in rotary_modules(run):
        for width in WIDTHS:
            config = copy.deepcopy(getattr(module, "config", None))
            if config is None or not _number(theta) or (width != WIDTHS[0] and not hasattr(config, width)):
                continue
            setattr(config, width, WIDE)
            held: dict[str, Any] = config.rope_parameters
            if TRAINED not in held:
                return None
            numbers = [name for name, value in held.items() if _number(value) and name not in ("rope_theta", TRAINED)]
            named = {name: held[name] * (1 + APART * place) for place, name in enumerate(numbers, 1)}
            held.update(named, **{TRAINED: LENGTH})
            wide = type(module)(config)
            made = turned(run, wide.to(run.model.device), [0, 1], None)
            if made is not None and (angles := _angles(made)) is not None and len(angles) > WIDE // 8:
                base = [theta ** (-pair / len(angles)) for pair in range(len(angles))]
                pairs = [(f, a) for f, a in zip(base, angles, strict=True) if a > 0]
                return [2 * math.pi / f for f, _ in pairs], [f / a for f, a in pairs], named
    return None


def _angles(made: tuple[torch.Tensor, ...]) -> list[float] | None:
    """The angle of each pair at position one, from cosines and sines or from complex numbers."""
    if len(made) == 1 and made[0].is_complex():
        found: list[float] = made[0][1].angle().flatten().tolist()
        return found
    if len(made) != 2:
        return None
    row = torch.atan2(made[1][1].double(), made[0][1].double()).flatten()
    half = len(row) // 2
    if torch.equal(row[:half], row[half:]):
        row = row[:half]
    elif torch.equal(row[::2], row[1::2]):
        row = row[::2]
    found = row.tolist()
    return found


def _between(waves: list[float], place: int, named: dict[str, float]) -> str | None:
    """The entry by which the training length is divided to give a wavelength just below a pair's, or up to one pair
    further below where the first change is too small to see.
    """
    near = (waves[max(place - 2, 0)] * (1 - SAME), waves[place] * (1 + SAME))
    found = [name for name, value in named.items() if value > 0 and near[0] <= LENGTH / value <= near[1]]
    return found[0] if len(found) == 1 else None


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
