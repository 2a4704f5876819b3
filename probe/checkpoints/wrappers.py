"""Which family a raw config belongs to, and which wrappers around a text model can be probed.

A wrapper adds an encoder (images, sound) to a text model. Its vision is probed where its processor is known (`tokens`);
where transformers builds the text model inside a wrapper only, the text model is probed in it. Other wrappers are
refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probe import registry
from probe.checkpoints import files, tokens
from probe.checkpoints.target import Target
from probe.errors import ProbeError


def family_of(config: Mapping[str, Any], where: str) -> str:
    """The family of a raw config, by its text model. What no family names is asked of transformers.

    Args:
        where: what the config was read from, for the sentence of an error.

    Raises:
        ProbeError: a text model that is no family's, a wrapper that cannot be probed, or no ``model_type``.
    """
    root, text = config.get("model_type"), files.text_model_type(dict(config))
    if (inside := _only_inside().get(str(root))) is not None:
        return inside
    if text is None or registry.find(text) is None:
        from probe.checkpoints import classes

        text = classes.text_type(classes.config_from(config))
        if registry.find(text) is None:
            near = registry.nearest(text, registry.names())
            raise ProbeError(
                f"{where} has a text model of type {text!r}, which is no decoder that transformers builds by itself"
                f"{near}: name a checkpoint of a family that `python -m probe list` shows."
            )
    if root not in (text, *tokens.WRAPPERS):
        raise ProbeError(
            f"{where} is of type {root!r}, a wrapper around a text model of the family {text} whose encoder cannot be "
            f"probed yet: save its text model alone, or probe the family with `python -m probe {text}`."
        )
    return text


def require(target: Target, config: Mapping[str, Any]) -> None:
    """Raises ProbeError where a checkpoint's own config says that it cannot be probed as its target's family."""
    if (found := family_of(config, target.id)) != target.family:
        raise ProbeError(f"{target.id} belongs to the family {found}, not {target.family}: probe it as {found}.")


def _only_inside() -> dict[str, str]:
    """Wrappers in which alone transformers builds a text model: model_type -> family."""
    return {row.wrapper: row.model_type for row in registry.table().values() if row.wrapper}
