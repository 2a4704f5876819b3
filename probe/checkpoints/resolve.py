"""From what a user typed to a target."""

from __future__ import annotations

from probe.checkpoints.declared import declared, families
from probe.checkpoints.target import Target
from probe.errors import ProbeError


def resolve(name: str, family: str | None = None, *, offline: bool = False) -> Target:
    """The target a user means by a twin's name, a Hub id, a local directory or a GGUF file."""
    if family is not None and name in declared(family).twins:
        return Target(family, name, "tiny")
    for known in [family] if family else families():
        if name in declared(known).checkpoints:
            return Target(known, name, "weights")
    raise ProbeError(f"No checkpoint {name!r}.")
