"""Real weights from the package index: the ``real`` extra ships two small models as GGUF files.

A model is converted once, to safetensors and tokenizer files in the cache directory; later loads take seconds.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Shipped:
    """Where a package keeps a GGUF file.

    Attributes:
        packages: import names of the packages that hold the file's parts, in order.
        pattern: glob of the part inside each package's directory.
    """

    packages: tuple[str, ...]
    pattern: str


SHIPPED: dict[str, Shipped] = {}


def installed(hub_id: str) -> bool:
    """Whether the packages that ship this checkpoint's weights are installed."""
    shipped = SHIPPED.get(hub_id)
    return shipped is not None and all(importlib.util.find_spec(name) is not None for name in shipped.packages)


def cache_directory() -> Path:
    """``$PROBE_CACHE``, else a directory of the project's own under the user's cache."""
    own = os.environ.get("PROBE_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "transformer-atlas"
