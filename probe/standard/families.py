"""What a family declares of its names and values: its module, or what a run of the checkpoint shows."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..errors import ProbeError

if TYPE_CHECKING:
    from ..checkpoints import Loaded


def family_of(loaded: Loaded) -> Any:
    """What the family of a loaded checkpoint declares: its module, or what a run of the checkpoint shows.

    Raises:
        ProbeError: the family has no module, and nothing can be derived from a run.
    """
    from .. import registry

    name = loaded.target.family
    if name in registry.modules():
        return family_module(name)
    from .. import derive

    return derive.family_of(loaded)


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
