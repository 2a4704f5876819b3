"""Weights that loading a checkpoint passes over, since the class makes no module of them."""

from __future__ import annotations

import re

from ..measure.run import Run
from ..schema import Fact

NAMES = "_keys_to_ignore_on_load_unexpected"

MOST = 4
"""Most patterns that the sentence lists."""


def passed_over(run: Run) -> list[Fact]:
    """The patterns by which the class tells such weights, of which none is a parameter of the model."""
    module = run.model._module
    patterns = [str(each) for each in getattr(module, NAMES, None) or ()]
    own = module.state_dict().keys()
    apart = sorted(each for each in patterns if not any(re.search(each, name) for name in own))
    if not {*apart} <= {*(getattr(type(module), NAMES, None) or ())}:  # made for this number of blocks
        apart = sorted({re.sub(r"(?<=layers\.)\d+|(?<=layers\\\.)\d+", "{i}", each) for each in apart})
    if not apart:
        return []
    listed = ", ".join(f"`{each}`" for each in apart[:MOST]) + (", …" if len(apart) > MOST else "")
    return [
        Fact(
            name="passed_over_at_loading",
            label="Weights that loading passes over",
            value=len(apart),
            unit="patterns",
            statement=(
                f"Loading passes over weights whose names match {listed}: the class has no such parameter, so what a "
                "checkpoint holds there is not in the model."
            ),
        )
    ]
