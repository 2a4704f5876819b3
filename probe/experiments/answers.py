"""Small parts that most experiments end with: one answer from many blocks, config entries that explain, numbers in
words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from transformers.integrations.heterogeneity.configuration_utils import AmbiguousGlobalPerLayerAttributeError

from ..instruments.extra import once
from ..measure.identities import RELATIVE
from ..measure.rounding import one_digit
from ..measure.run import Run
from .base import Measured, Verdict

NO_INTERFACE = (
    "The attention neither calls transformers' shared attention interface nor takes a softmax of a plain product, so "
    "its queries and keys could not be tapped."
)
NO_ATTENTION = "No block has an attention."


def per_block(
    found: Sequence[bool | None],
    measured: Measured | None = None,
    explained: dict[str, str] | None = None,
    absent: str = "",
    unknown: str | None = None,
) -> Verdict:
    """One verdict from an answer a block.

    Args:
        found: for each block whether the property holds; None where the block has no such part.
        absent: why the answer is `n/a` when no block has the part.
        unknown: where set, why blocks without an answer could not be examined: the verdict is then `inconclusive`.
    """
    numbers = measured or {}
    holds = [index for index, answer in enumerate(found) if answer]
    if holds:
        return Verdict("yes", holds, numbers, explained or {})
    if all(answer is None for answer in found):
        return (
            Verdict("inconclusive", measured=numbers, why=unknown)
            if unknown
            else Verdict("n/a", measured=numbers, why=absent or None)
        )
    return Verdict("no", [], numbers, explained or {})


def entry(run: Run, path: str) -> Any:
    """An entry of the text config by its dotted path, or None."""
    return config_entry(_config(run), path)


@once
def _config(run: Run) -> Any:
    return run.model.text_config


def config_entry(config: Any, path: str) -> Any:
    """An entry of a config by its dotted path; None where there is none, or where it is another on each block."""
    value: Any = config
    for step in path.split("."):
        try:
            value = value.get(step) if isinstance(value, Mapping) else getattr(value, step, None)
        except AmbiguousGlobalPerLayerAttributeError:
            return None
        if value is None:
            return None
    return value


def explain(run: Run, measured: Measured, names: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Measured number -> the first of its candidate config entries that is equal to it."""
    found = {}
    for number, paths in names.items():
        for path in paths:
            if number in measured and equal(measured[number], entry(run, path)):
                found[number] = path
                break
    return found


def equal(measured: Any, named: Any) -> bool:
    """Whether a measured number and a config entry are the same: integers exactly, floats to a thousandth."""
    if named is None or measured is None or isinstance(named, (bool, str)) or isinstance(measured, (bool, str)):
        return named is not None and measured == named and type(measured) is type(named)
    if isinstance(measured, (int, float)) and isinstance(named, (int, float)):
        return math.isclose(
            measured, named, rel_tol=0 if isinstance(measured, int) and isinstance(named, int) else 1e-3
        )
    return bool(measured == named)


def tolerance(run: Run) -> float:
    """Relative difference below which two numbers of this run count as equal: that of an identity, with room for a
    few more steps.
    """
    return 10 * RELATIVE.get(run.dtype, 2e-5)


def small(run: Run, number: float) -> float:
    """A difference as a record holds it: one digit, and 0 below the tolerance, where machines do not agree on
    digits.
    """
    return 0.0 if number < tolerance(run) else one_digit(number)


def phrase(measured: Measured, name: str, form: str) -> str:
    """``form`` with the number put in, or nothing where it was not measured on this checkpoint."""
    return form.format(measured[name]) if measured.get(name) is not None else ""


def spread(values: Sequence[float]) -> list[float]:
    """Smallest and largest."""
    return [min(values), max(values)]
