"""The default family of a loaded checkpoint."""

from __future__ import annotations

from typing import Any

from .. import registry
from ..checkpoints import Loaded
from ..checkpoints.factory import default_inputs
from ..errors import ProbeError
from ..wiring.anatomy import Underivable
from .blocks import Unlocated
from .draft import draft
from .family import default_family


def derived(loaded: Loaded) -> Any:
    """The default family of a checkpoint that runs, whether or not its family has a module.

    Raises:
        ProbeError: its wiring or its places cannot be derived; the message says what stood in the way.
    """
    known = registry.get(loaded.target.family)
    try:
        found = draft(loaded.module, default_inputs(loaded.module))
    except (Underivable, Unlocated, LookupError) as error:
        raise ProbeError(f"{loaded.target.family}, {loaded.target.id}: {error}.") from error
    return default_family(known.name, known.title, known.checkpoints, loaded.module, found)
