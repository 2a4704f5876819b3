"""What transformers says against an attention implementation that a load asks for, as one sentence."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from probe.errors import ProbeError


@contextmanager
def asked_for(attn: str) -> Iterator[None]:
    """Within it a model is made or switched. Raises ProbeError where its class or this machine lacks ``attn``."""
    try:
        yield
    except (ValueError, ImportError) as error:
        if not any("attn" in frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)):
            raise
        said = " ".join(str(error).split()).split(". ")[0].rstrip(".")
        raise ProbeError(
            f"The attention implementation {attn!r} cannot be used here ({said}): use eager or sdpa, or leave it out."
        ) from error
