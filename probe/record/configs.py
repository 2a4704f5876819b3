"""The config cards: the sizes the standard layer reports, then the entries of the checkpoint's own config."""

from __future__ import annotations

import math
from typing import Any

from ..measure.shapes import block_sizes
from ..schema import Row
from ..standard import StandardizedTransformer

FIRST = tuple(
    (
        "num_hidden_layers hidden_size intermediate_size num_attention_heads num_key_value_heads head_dim vocab_size "
        "max_position_embeddings sliding_window attention_chunk_size hidden_activation hidden_act rms_norm_eps "
        "layer_norm_eps final_logit_softcapping tie_word_embeddings dtype"
    ).split()
)
"""Entries every reader looks for, in this order; the rest follows by name."""

BOILERPLATE = frozenset(
    (
        "architectures chunk_size_feed_forward id2label label2id initializer_range is_encoder_decoder problem_type "
        "return_dict use_cache output_attentions output_hidden_states transformers_version model_type bos_token_id "
        "eos_token_id pad_token_id name_or_path is_decoder tokenizer_class attention_dropout torchscript"
    ).split()
)

MODEL_SIZES = (
    "num_layers",
    "hidden_size",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "qk_head_dim",
    "vocab_size",
    "intermediate_size",
)
VISION_SIZES = (
    "num_layers",
    "vision_hidden_size",
    "num_heads",
    "head_dim",
    "intermediate_size",
    "patch_size",
    "image_size",
)


def sizes(model: StandardizedTransformer) -> dict[str, int]:
    """The sizes the root reports, and the mixture's where there is one."""
    found = _own_sizes(model)
    for layer in model.layers:
        own = block_sizes(layer)
        for name in ("num_experts", "top_k"):
            if name in own:
                found.setdefault(name, own[name])
    return found


def _own_sizes(model: StandardizedTransformer) -> dict[str, int]:
    """The sizes of the text model, as far as it has them."""
    found = {name: getattr(model, name) for name in MODEL_SIZES}
    return {name: int(value) for name, value in found.items() if value is not None}


def vision_sizes(model: StandardizedTransformer) -> dict[str, int]:
    """The sizes the tower reports; those that vary are left out."""
    found = {name: getattr(model.vision, name) for name in VISION_SIZES}
    return {name: int(value) for name, value in found.items() if value is not None}


def text_rows(model: StandardizedTransformer) -> list[Row]:
    """The rows of the config card."""
    own = [Row(name=f"model.{name}", value=value) for name, value in _own_sizes(model).items()]
    return [*own, Row(name="architectures", value=type(model._module).__name__), *_entries(model.text_config)]


def vision_rows(model: StandardizedTransformer) -> list[Row]:
    """The rows of the vision config card."""
    own = [Row(name=f"model.vision.{name}", value=_or_varies(getattr(model.vision, name))) for name in VISION_SIZES]
    return [*own, *_entries(model.vision._module.config)]


def wrapper_rows(model: StandardizedTransformer) -> list[Row] | None:
    """The rows of a wrapper whose encoder has no standard names: its own entries, and those of its vision config; None
    for a model that is no wrapper.
    """
    config = model._module.config
    if getattr(config, "vision_config", None) is None or config is model.text_config:
        return None
    parts = {name for name, value in config.to_dict().items() if isinstance(value, dict)}
    own = [row for row in _entries(config) if row.name.partition(".")[0] not in parts]
    return [
        *own,
        *(row.model_copy(update={"name": f"vision_config.{row.name}"}) for row in _entries(config.vision_config)),
    ]


def _or_varies(value: int | None) -> int | str:
    return "varies" if value is None else value


def _entries(config: Any) -> list[Row]:
    entries = dict(config.to_dict())
    rows = []
    for name in [*FIRST, *sorted(set(entries) - set(FIRST))]:
        if name not in entries or name.startswith("_") or name in BOILERPLATE:
            continue
        rows += _flat(name, entries[name])
    return rows


def _flat(name: str, value: Any) -> list[Row]:
    """One row for a scalar; a nested entry gives a row a leaf, and a long list says how its values are spread."""
    if isinstance(value, dict):
        return [row for key in sorted(value, key=str) for row in _flat(f"{name}.{key}", value[key])]
    if isinstance(value, (list, tuple)):
        if len(value) > 8 and len(set(map(str, value))) < len(value):
            counts = {str(item): sum(1 for other in value if str(other) == str(item)) for item in value}
            return [Row(name=name, value=", ".join(f"{count} × {item}" for item, count in counts.items()))]
        return [Row(name=name, value=[_scalar(item) for item in value])]
    return [Row(name=name, value=_scalar(value))]


def _scalar(value: Any) -> bool | int | float | str | None:
    """The value itself; as text what JSON has no form for: a class, a dtype, an infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (bool, int, float, str)) or value is None else str(value).removeprefix("torch.")
