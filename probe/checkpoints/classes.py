"""From a config.json to transformers' config and model classes."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
)

from probe.checkpoints.target import Task
from probe.errors import ProbeError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


def config_from(raw: Mapping[str, Any]) -> PreTrainedConfig:
    """The config object of a config.json's content, by its ``model_type``.

    Raises:
        ProbeError: no ``model_type``, or one the installed transformers does not know, or values it refuses.
    """
    model_type = raw.get("model_type")
    if not isinstance(model_type, str):
        raise ProbeError("The config.json has no `model_type`, so its class is unknown: take the published file.")
    if model_type not in CONFIG_MAPPING:
        near = difflib.get_close_matches(model_type, list(CONFIG_MAPPING.keys()), 3)
        hint = f" (the nearest it knows: {', '.join(near)})" if near else ""
        raise ProbeError(f"This transformers does not know model_type {model_type!r}{hint}: install one that does.")
    try:
        return CONFIG_MAPPING[model_type].from_dict(dict(raw))
    except MemoryError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise ProbeError(f"transformers refuses this config.json of {model_type!r} ({said}): mend it.") from error


def text_type(config: PreTrainedConfig) -> str:
    """model_type of the text model: of ``text_config`` on a wrapper, else the config's own."""
    return config.get_text_config(decoder=True).model_type


def task(config: PreTrainedConfig) -> Task:
    """What the checkpoint's class does, by whether it has a vision config."""
    return "image-text-to-text" if getattr(config, "vision_config", None) is not None else "text-generation"


def model_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """The class that a load of this config instantiates.

    Raises:
        ProbeError: the installed transformers has no generating class for it.
    """
    wrapper = task(config) == "image-text-to-text"
    mapping = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING if wrapper else MODEL_FOR_CAUSAL_LM_MAPPING
    if type(config) not in mapping:
        raise ProbeError(
            f"No class of transformers generates text from model_type {config.model_type!r}: name another."
        )
    return mapping[type(config)]
