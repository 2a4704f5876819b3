"""Facts: measured numbers of a checkpoint that are neither an identity nor a quirk."""

from __future__ import annotations

from ..measure.run import Run
from ..schema import Fact


def facts(run: Run) -> list[Fact]:
    """The measured facts of one run."""
    count = sum(parameter.numel() for parameter in run.model._module.parameters())
    return [Fact(name="parameters", label="Parameters", value=count, statement=f"The checkpoint has {count:,} parameters, tied ones counted once.")]
