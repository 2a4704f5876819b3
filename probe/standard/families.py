"""What a family declares of its names and values: its module, or what a run of the checkpoint shows."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from .. import registry
from ..checkpoints import Loaded
from ..derive import derived, transferred
from ..errors import ProbeError


def family_of(loaded: Loaded) -> Any:
    """What the family of a loaded checkpoint declares: its module, or what a run shows, the checkpoint's own or, for a
    build from a config, a twin's.

    Raises:
        ProbeError: the family has no module, and nothing can be derived from a run; says what stood in the way.
    """
    name = loaded.target.family
    if name in registry.modules():
        return family_module(name)
    return transferred(loaded) if loaded.target.kind == "config" else derived(loaded)


def family_module(family: str) -> ModuleType:
    """The module of a family, by the model_type of its text model.

    Raises:
        ProbeError: there is none.
    """
    try:
        return importlib.import_module(f"families.{family}")
    except ModuleNotFoundError as error:
        if error.name != f"families.{family}":
            raise
        raise ProbeError(
            f"There is no module families/{family}.py: add one, or choose a checkpoint of a family that "
            "`python -m probe list` names."
        ) from error
