"""What norms add under their root, measured: how much less a norm gives for an input that is made smaller."""

from __future__ import annotations

import math

import torch

from ...instruments.reweighted import called_with
from ...measure.run import Run
from ...schema import Fact
from ...wording import added_under_root
from .norms import Call, calls

SIZES = (1e-3, 3e-3)
"""Root mean squares to which an input is made smaller: so small that what is added counts."""

ALIKE = 2e-2
"""How far what is found with one size may be from what is found with another, relative to it."""

LEAST = 1e-14
"""What is added at least, to be told from rounding."""

UNDER = {False: "mean square", True: "variance"}
"""What stands under the root of a norm, by whether it subtracts the mean."""


SUM = "sum of squares"

WIDE = 4
"""Numbers in a vector from which a length of one is told from a mean square of one."""


def epsilon_facts(run: Run) -> list[Fact]:
    """What the norms of the blocks add, and the config's name for it."""
    found: dict[float, dict[str, str]] = {}
    for block in calls(run):
        for call in block:
            if (told := added(call)) is not None:
                value, under = told
                found.setdefault(value, {})[type(call.norm).__name__] = under
    if not found:
        return []
    parts: list[tuple[str, str | None, list[str]]] = []
    rows = []
    for value, classes in sorted(found.items()):
        entry, number = named(run, value)
        parts.append((f"{number:g}", entry, sorted(classes)))
        rows += [(name, number, entry, classes[name]) for name in sorted(classes)]
    norms, every, entries, roots = zip(*rows, strict=True)
    said = added_under_root(parts, roots)
    measured = {"norms": [*norms], "added": [*every], "entries": [*entries], "to": [*roots]}
    label = "Added under a norm's root"
    return [Fact(name="norm_epsilon", label=label, value=max(found), measured=measured, statement=said)]


def added(call: Call, width: int | None = None) -> tuple[float, str] | None:
    """What a norm adds, with two digits, and to what: ``mean square``, ``variance``, or ``sum of squares`` where it
    gives vectors of length one; None where no one number explains how it shrinks.

    Args:
        width: how many numbers it norms together; the width of what it takes if None.
    """
    told = epsilon(call)
    if told is None:
        return None
    value, centred = told
    width = width or call.given.shape[-1]
    if not centred and _gives_length_one(call, width):
        return float(f"{value * width:.2g}"), SUM
    return float(f"{value:.2g}"), UNDER[centred]


def _gives_length_one(call: Call, width: int) -> bool:
    """Whether a norm without a gain gives vectors of length one, and not of one a number."""
    if call.weights or width < WIDE or call.args or call.kwargs:
        return False
    rows = call.on(torch.ones_like(call.given))
    return math.isclose(float(rows.float().square().mean()), 1 / width, rel_tol=ALIKE)


def epsilon(call: Call) -> tuple[float, bool] | None:
    """What a norm adds, and whether it subtracts the mean, so that it adds it to the variance; None where no one
    number explains how it shrinks, as where it is added behind the root.
    """
    given = call.given.float()
    centred = given - given.mean(-1, keepdim=True)
    weights = {name: parameter.float() for name, parameter in call.norm.named_parameters()}

    def on(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            out: torch.Tensor = called_with(call.norm, weights, x, *call.args, **call.kwargs)
        return out.double()

    try:
        nothing = on(torch.zeros_like(given))
        unit = given / given.square().mean(-1, keepdim=True).sqrt().clamp_min(1e-30)
        shifts = bool((on(unit + 1) - on(unit)).abs().max() < 1e-4 * on(unit).abs().max())
        x = (centred if shifts else given).double()
        x = x / x.square().mean(-1, keepdim=True).sqrt().clamp_min(1e-30)
        whole = on(x.float()) - nothing
        found = [_added(on((x * size).float()) - nothing, whole, size) for size in SIZES]
    except (RuntimeError, TypeError):
        return None
    one, other = found
    if one is None or other is None or not math.isclose(one, other, rel_tol=ALIKE):
        return None
    return (one, shifts) if one > LEAST else None


def _added(small: torch.Tensor, whole: torch.Tensor, size: float) -> float | None:
    """From what a norm gives for an input of this size, and for one of size one: their ratio is
    ``size * sqrt(1 + e) / sqrt(size**2 + e)``.
    """
    ratio = float((small * whole).sum() / whole.square().sum().clamp_min(1e-30))
    if float((small - ratio * whole).abs().max()) > 1e-3 * float(whole.abs().max()) or ratio**2 <= size**2:
        return None
    return size**2 * (1 - ratio**2) / (ratio**2 - size**2)


def named(run: Run, value: float) -> tuple[str | None, float]:
    """The config's entry that is equal to the number, with its own; the number alone where no or no single one is."""
    found = candidates(run, value)
    return (None, value) if len(found) != 1 else next(iter(found.items()))


def candidates(run: Run, value: float) -> dict[str, float]:
    """The config's entries for an epsilon that are equal to the number, with their own."""
    return {
        name: held
        for name, held in sorted(run.model.text_config.to_dict().items())
        if "eps" in name and isinstance(held, float) and math.isclose(held, value, rel_tol=5e-2)
    }
