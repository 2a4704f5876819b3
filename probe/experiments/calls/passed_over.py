"""Weights that loading a checkpoint passes over, since the class makes no module of them."""

from __future__ import annotations

import re

from ...measure.run import Run
from ...schema import Fact

NAMES = "_keys_to_ignore_on_load_unexpected"

MOST = 4
"""Most patterns that the sentence lists."""


def passed_over(run: Run) -> list[Fact]:
    """The patterns by which the class tells such weights, of which none is a parameter of the model."""
    module = run.model._module
    patterns = [str(each) for each in getattr(module, NAMES, None) or ()]
    own = module.state_dict().keys()
    named = {each for part in module.modules() for each in getattr(type(part), NAMES, None) or ()}
    apart = sorted(
        {
            each if each in named else _by_size(each, len(run.text))
            for each in patterns
            if not any(re.search(each, name) for name in own)
        }
    )
    if not apart:
        return []
    listed = ", ".join(f"`{each}`" for each in apart[:MOST]) + (", …" if len(apart) > MOST else "")
    some = " on some blocks" if "{i}" in listed else ""
    return [
        Fact(
            name="passed_over_at_loading",
            label="Weights that loading passes over",
            value=len(apart),
            unit="patterns",
            measured={"patterns": [*apart]},
            statement=(
                f"Loading passes over weights whose names match {listed}{some}: there the class has no such parameter, "
                "so what a checkpoint holds of them is not in the model."
            ),
        )
    ]


def _by_size(pattern: str, blocks: int) -> str:
    """A pattern that a model made for its own number of blocks, so that it holds of any number."""

    def general(found: re.Match[str]) -> str:
        index = int(found[0])
        more = f" + {index - blocks}" if index > blocks else ""
        return "{i}" if index < blocks else f"{{num_hidden_layers{more}}}"

    return re.sub(r"(?<=layers\.)\d+|(?<=layers\\.)\d+", general, pattern)
