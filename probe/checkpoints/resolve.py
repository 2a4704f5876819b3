"""From what a user typed to a target."""

from __future__ import annotations

import re
from pathlib import Path

from probe import registry
from probe.checkpoints import files, hub, published
from probe.checkpoints.target import Target
from probe.checkpoints.wrappers import family_of
from probe.errors import ProbeError

GGUF_FAMILIES = {"llama": "llama", "gemma3": "gemma3_text"}
"""llama.cpp's name of an architecture -> model_type of transformers' text model."""

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def resolve(name: str, family: str | None = None, *, offline: bool = False) -> Target:
    """The target a user means.

    Args:
        name: a twin's name (``tiny``, with its family), a Hub id, a directory as ``save_pretrained`` writes it, or a
            GGUF file. A Hub id stands for its real weights: those of the ``real`` extra where they are installed,
            else the Hub's.
        family: the family the target must be of; None takes the checkpoint's own.
        offline: ask the Hub for nothing.

    Raises:
        ProbeError: nothing of that name, a class of no family, a wrapper that cannot be probed, a checkpoint of another
            family.
    """
    if family is not None:
        registry.get(family)
    if name in _twins(family):
        return _twin(name, family)
    path = Path(name).expanduser()
    if path.exists():
        return _of(family, *_local(path))
    if _listed_in(name) or (_HUB_ID.fullmatch(name) and not _is_path(name)):
        return _of(family, _from_config(name) or _listed_in(name) or _from_hub(name, offline), name, None)
    raise ProbeError(_nothing(name, family))


def _is_path(name: str) -> bool:
    return name.endswith(".gguf") or name.startswith((".", "/", "~"))


def _twins(family: str | None) -> set[str]:
    among = registry.families() if family is None else [registry.get(family)]
    return {twin for known in among for twin in known.twins}


def _twin(name: str, family: str | None) -> Target:
    having = [family] if family else [known.name for known in registry.families() if name in known.twins]
    if len(having) > 1:
        shown = f"{', '.join(having[:3])}, …" if len(having) > 4 else ", ".join(having)
        raise ProbeError(f"{len(having)} families have a twin {name!r} ({shown}): say which family.")
    return Target(having[0], name, "tiny")


def _listed_in(hub_id: str) -> str | None:
    return next((known.name for known in registry.families() if hub_id in known.checkpoints), None)


def _from_config(hub_id: str) -> str | None:
    """Family of a repository by its config, where that is at hand."""
    stem = published.stem(hub_id)
    return family_of(published.published(stem).config, hub_id) if stem else None


def _from_hub(hub_id: str, offline: bool) -> str:
    return family_of(files.read_config(hub.config_file(hub_id, offline=offline).parent), hub_id)


def _local(path: Path) -> tuple[str, str, Path]:
    if path.is_dir():
        found = family_of(files.read_config(path), str(path))
        files.check_weights(path)
        return found, path.resolve().name, path
    if path.suffix != ".gguf":
        raise ProbeError(f"{path} is no GGUF file: give one, or a directory as `save_pretrained` writes it.")
    architecture = files.gguf_architecture(path)
    if architecture not in GGUF_FAMILIES:
        raise ProbeError(
            f"{path} is of llama.cpp's architecture {architecture!r}, and only {', '.join(GGUF_FAMILIES)} can be read "
            "from a GGUF file: give its safetensors directory instead."
        )
    return GGUF_FAMILIES[architecture], path.name, path


def _of(wanted: str | None, found: str, name: str, path: Path | None) -> Target:
    if wanted not in (None, found):
        raise ProbeError(f"{name} belongs to the family {found}, not {wanted}: probe it as {found}.")
    return Target(found, name, "weights", path)


def _nothing(name: str, family: str | None) -> str:
    if _is_path(name):
        return f"There is no directory or GGUF file {name}: check the path."
    among = registry.families() if family is None else [registry.get(family)]
    hint = registry.nearest(name, [*_twins(family), *(listed for known in among for listed in known.checkpoints)])
    return f"There is no checkpoint {name!r}{hint}: give a Hub id, a directory, a GGUF file or a tiny twin's name."
