"""Which config each decoder's twins are shrunk from, and which model types are decoders at all."""

from __future__ import annotations

from transformers.models.auto import modeling_auto

from probe import registry
from probe.errors import ProbeError

WRAPPED = {row.model_type: row.wrapper for row in registry.table().values() if row.wrapper}
"""Text models that transformers builds inside a vision-language wrapper only."""


def twins(model_type: str) -> dict[str, str | None]:
    """The twins of a decoder, see `registry.default_twins`: several where checkpoints differ in wiring; one without a
    config may differ from the class's defaults by a line in `adjust`."""
    return registry.default_twins(model_type)


def twin(model_type: str, name: str) -> str | None:
    """The published config of one twin. Raises: ProbeError if there is no such decoder, or no such twin of it."""
    if model_type not in decoders():
        near = registry.nearest(model_type, decoders())
        raise ProbeError(f"This transformers has no text decoder {model_type!r}{near}: name another.")
    known = twins(model_type)
    if name not in known:
        raise ProbeError(f"{model_type} has no twin named {name!r}; it has {', '.join(known)}.")
    return known[name]


def root_type(model_type: str) -> str:
    """model_type of the config that is built: the wrapper's where the text model has no class of its own."""
    return WRAPPED.get(model_type, model_type)


OTHER_TASKS = (
    modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_TEXT_TO_WAVEFORM_MAPPING_NAMES,
)
"""What transformers maps to one of these beside causal language modeling is no decoder of text alone."""

NO_DECODER = {
    "bert-generation": "an encoder that can be run causally",
    "gemma4_assistant": "drafts for another model, whose states it reads",
    "gemma4_unified_assistant": "drafts for another model, whose states it reads",
    "moshi": "hears and speaks",
    "trocr": "decodes what another model's encoder saw",
    "xlnet": "attends by permutation, not causally",
}
"""Classes mapped to causal language modeling alone that are no decoders of text either."""


def decoders() -> list[str]:
    """Model types of every text decoder of the installed transformers, sorted; reads names only.

    Those with a causal model of their own, and those that come in a wrapper only. A new one of a newer transformers
    appears by itself.
    """
    others = {*NO_DECODER}.union(*OTHER_TASKS)
    return sorted({*modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES} - others | {*WRAPPED})


def class_name(model_type: str) -> str:
    """The class that generates text, by name: the wrapper's where the text model has none of its own."""
    wrappers = modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    named = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(model_type) or wrappers[root_type(model_type)]
    return named if isinstance(named, str) else named[0]
