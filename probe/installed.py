"""The decoders of the installed transformers, asked once and then remembered, so that a run that needs nothing else of
it does not import it.

The answer is kept in the cache folder beside what it depends on: transformers' own list of classes, and the factory's
of which of them are decoders. Where transformers is not installed there are none.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
from pathlib import Path

from probe import store
from probe.errors import ProbeError

_SOURCES = Path(__file__).parent / "checkpoints" / "factory" / "sources.py"


def decoders() -> dict[str, str]:
    """Every decoder of the installed transformers: model_type -> class that generates text."""
    key = _key()
    if key is None:
        return {}
    path = store.cache_dir() / "decoders.json"
    try:
        data = json.loads(path.read_bytes())
        if data["key"] == key:
            return {str(name): str(class_name) for name, class_name in data["decoders"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    try:
        found: dict[str, str] = importlib.import_module("probe.checkpoints.factory").classes()
    except ImportError:
        return {}
    try:
        store.write_all({path: store.canonical({"key": key, "decoders": found})})
    except ProbeError:
        pass  # asked again next time
    return found


def _key() -> str | None:
    """What the answer depends on; None where transformers is not installed."""
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        return None
    names = Path(spec.origin).parent / "models" / "auto" / "modeling_auto.py"
    try:
        stat = names.stat()
    except OSError:
        return None
    said = [str(names), stat.st_mtime_ns, stat.st_size, hashlib.sha256(_SOURCES.read_bytes()).hexdigest()]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()
