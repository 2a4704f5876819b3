"""The default family: what a family module would declare, derived from one run of the model.

For a model_type with no module under ``families/``, :func:`family_of` gives an object with the same attributes: names,
hosts with their values, sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ProbeError

if TYPE_CHECKING:
    from ..checkpoints import Loaded


def family_of(loaded: Loaded) -> Any:
    """The default family of a loaded checkpoint.

    Raises:
        ProbeError: its wiring or its places cannot be derived; the message says what stood in the way.
    """
    from .. import registry
    from ..checkpoints.factory import default_inputs
    from ..measure.anatomy import Underivable
    from .blocks import Unlocated
    from .draft import draft
    from .family import default_family

    known = registry.get(loaded.target.family)
    try:
        found = draft(loaded.module, default_inputs(loaded.module))
    except (Underivable, Unlocated, LookupError) as error:
        raise ProbeError(f"{loaded.target.family}, {loaded.target.id}: {error}.") from error
    return default_family(known.name, known.title, known.checkpoints, loaded.module, found)
