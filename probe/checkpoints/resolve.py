"""From what a user typed to a target."""

from __future__ import annotations

import re
from pathlib import Path

from probe import registry
from probe.checkpoints import files, hub, published, real
from probe.checkpoints.target import Target
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
        ProbeError: nothing of that name, a class whose family has no module, a checkpoint of another family.
    """
    if family is not None:
        registry.get(family)
    if name in _twins(family):
        return _twin(name, family)
    path = Path(name).expanduser()
    if path.exists():
        return _of(family, *_local(path))
    if real.installed(name) or (family is not None and name in registry.get(family).checkpoints):
        return _of(family, _listed_in(name) or str(family), name, None)
    if _HUB_ID.fullmatch(name) and not _is_path(name):
        return _of(family, _listed_in(name) or _from_hub(name, offline), name, None)
    raise ProbeError(_nothing(name, family))


def _is_path(name: str) -> bool:
    return name.endswith(".gguf") or name.startswith((".", "/", "~"))


def _twins(family: str | None) -> set[str]:
    return {twin for known in registry.families() if family in (None, known.name) for twin in known.twins}


def _twin(name: str, family: str | None) -> Target:
    having = [known.name for known in registry.families() if name in known.twins]
    if family is None and len(having) > 1:
        raise ProbeError(f"Several families have a twin {name!r} ({', '.join(having)}): say which family.")
    return Target(family or having[0], name, "tiny")


def _listed_in(hub_id: str) -> str | None:
    return next((known.name for known in registry.families() if hub_id in known.checkpoints), None)


def _from_hub(hub_id: str, offline: bool) -> str:
    """Family of an unlisted repository: from the config at hand, else the Hub's."""
    stem = published.stem(hub_id)
    if stem:
        return _family(published.published(stem).config, hub_id)
    return _family(files.read_config(hub.config_file(hub_id, offline=offline).parent), hub_id)


def _local(path: Path) -> tuple[str, str, Path]:
    if path.is_dir():
        found = _family(files.read_config(path), str(path))
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


def _family(config: dict[str, object], where: str) -> str:
    """Family of a raw config. Raises: ProbeError naming the model_type if no module covers it."""
    found = files.text_model_type(config)
    if found is None:
        from probe.checkpoints import classes

        found = classes.text_type(classes.config_from(config))
    if found not in registry.names():
        raise ProbeError(
            f"{where} has a text model of type {found!r}, for which there is no family module"
            f"{registry.nearest(found, registry.names())}: add families/{found}.py, or name a checkpoint of a family "
            "that `python -m probe list` shows."
        )
    return found


def _of(wanted: str | None, found: str, name: str, path: Path | None) -> Target:
    if wanted not in (None, found):
        raise ProbeError(f"{name} belongs to the family {found}, not {wanted}: probe it as {found}.")
    return Target(found, name, "weights", path)


def _nothing(name: str, family: str | None) -> str:
    if _is_path(name):
        return f"There is no directory or GGUF file {name}: check the path."
    known = [
        *_twins(family),
        *(c for f in registry.families() if family in (None, f.name) for c in f.checkpoints),
    ]
    hint = registry.nearest(name, known)
    return f"There is no checkpoint {name!r}{hint}: give a Hub id, a directory, a GGUF file or a tiny twin's name."
