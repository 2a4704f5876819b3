"""The default family of a loaded checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import registry
from ..errors import ProbeError
from .blocks import Unlocated
from .draft import draft
from .family import default_family

if TYPE_CHECKING:
    from ..checkpoints import Loaded


def family_of(loaded: Loaded) -> Any:
    """The default family of a checkpoint: from a run of its own, or for a build from a config from a twin's.

    Raises:
        ProbeError: its wiring or its places cannot be derived; the message says what stood in the way.
    """
    if loaded.target.kind == "config":
        from .transfer import transferred

        return transferred(loaded)
    return derived(loaded)


def derived(loaded: Loaded) -> Any:
    """The default family of a checkpoint that runs, whether or not its family has a module.

    Raises:
        ProbeError: its wiring or its places cannot be derived; the message says what stood in the way.
    """
    from ..checkpoints.factory import default_inputs
    from ..measure.anatomy import Underivable

    known = registry.get(loaded.target.family)
    try:
        found = draft(loaded.module, default_inputs(loaded.module))
    except (Underivable, Unlocated, LookupError) as error:
        raise ProbeError(f"{loaded.target.family}, {loaded.target.id}: {error}.") from error
    return default_family(known.name, known.title, known.checkpoints, loaded.module, found)
