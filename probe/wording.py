"""Sentences that a record holds with the run's numbers and a page tells with its checkpoint's own: composed once.

Names of config entries stand between backticks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def added_under_root(parts: Sequence[tuple[str, str | None, Sequence[str]]], under: Iterable[str]) -> str:
    """What the norms before and after sublayers add.

    Args:
        parts: what is added, the config's entry for it, and the classes of the norms that add it.
        under: what stands under their roots, `mean square` or `variance`.
    """
    said = []
    for number, entry, norms in parts:
        classes = f" ({_listed(norms)})" if len(parts) > 1 else ""
        said.append(f"{number}{f', `{entry}`,' if entry else ''}{classes}")
    square = " or the ".join(sorted({*under}))
    return f"The norms before and after sublayers add {' or '.join(said)} to the {square} under the root."


def scaled_wavelengths(kept_below: str, divided_beyond: str, by: str) -> str:
    """Between which wavelengths the frequencies of a rotary are lowered, and what the longest are divided by."""
    return (
        f"A rotary pair with a wavelength below {kept_below} positions keeps its frequency; one with a wavelength "
        f"above {divided_beyond} has it divided by {by}; between the two the divisor grows."
    )


def balancing_loss(flag: str, default: object, times: str, padding: bool) -> str:
    """The loss that balances experts.

    Args:
        flag: the config's entry that brings it.
        default: what the config has for it; said where that is on or off.
        times: what the loss is multiplied by.
        padding: whether padded positions count in it.
    """
    held = f", which the config has {'on' if default else 'off'}" if isinstance(default, bool) else ""
    return (
        f"With labels and `{flag}=True`{held}, the loss has {times} times `aux_loss` in it, which balances the "
        f"experts; without the flag it has none. Padded positions {'count in it too' if padding else 'do not count'}."
    )


def _listed(names: Sequence[str]) -> str:
    *first, last = [f"`{name}`" for name in names]
    return f"{', '.join(first)} and {last}" if first else last
