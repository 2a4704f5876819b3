"""A config made small: the published one, or the class's defaults, with the flags kept and the sizes replaced."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from probe.checkpoints.factory import pattern, sizes

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

COMMON = {"id2label", "label2id", "architectures", "transformers_version", "dtype", "torch_dtype", "per_layer_config",
          "quantization_config", "_name_or_path", "auto_map", "model_type", "problem_type"}  # fmt: skip
"""Entries that say nothing about the model's build; `per_layer_config` follows from the rest."""

ONES: dict[str, Any] = {
    "embedding_multiplier": 3.0,
    "logits_scaling": 1.6,
    "residual_multiplier": 0.6,
    "attention_multiplier": 0.3,
    "lm_head_multiplier": 0.8,
    "key_multiplier": 0.7,
    "attention_in_multiplier": 0.9,
    "attention_out_multiplier": 1.2,
    "ssm_in_multiplier": 1.1,
    "ssm_out_multiplier": 0.85,
    "mlp_multipliers": [0.9, 1.3],
    "ssm_multipliers": [0.8, 1.2, 0.9, 1.1, 0.7],
    "routed_scaling_factor": 1.7,
    "moe_routed_scaling_factor": 1.7,
    "route_scale": 1.7,
    "full_attn_alpha_factor": 1.3,
    "full_attn_beta_factor": 0.8,
    "linear_attn_alpha_factor": 1.4,
    "linear_attn_beta_factor": 0.7,
    "mlp_alpha_factor": 1.2,
    "mlp_beta_factor": 0.9,
}
"""Factors whose class default is 1, which hides them: published checkpoints of these classes set others."""


def shrink(config: PreTrainedConfig, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments of the small config.

    Args:
        config: the full-size config object.
        raw: what a published config.json says of it; empty where the class's defaults stand for it.
    """
    own = {f.name: f for f in fields(type(config)) if f.name not in COMMON}
    defaults = {name: _default(f) for name, f in own.items()}
    full = {name: value for name, value in vars(config).items() if not name.startswith("_")}
    full |= {name: full[alias] for name, alias in config.attribute_map.items() if name in own and alias in full}
    names = {config.attribute_map.get(name, name): value for name, value in raw.items()}
    rotary = any(name.startswith("rope") for name in names)
    names = {name: full[name] for name in names if name in full}
    s = sizes.sizes(full)
    depth_names = [name for name in {**full, **names} if pattern.DEPTH.search(name)]
    depth = next((full[name] for name in depth_names if isinstance(full.get(name), int)), 0)
    depth = len(full.get("layers_block_type") or ()) or depth
    columns = pattern.columns({k: v for k, v in full.items() if k in own and v is not None}, depth)
    chosen = pattern.choose(list(zip(*columns.values(), strict=True)) or [0] * depth) if depth else []
    small: dict[str, Any] = {}
    for name in {**own, **names}:
        if name in COMMON or name not in full:
            continue
        stated = name in names
        value = full[name]
        if name in columns:
            small[name] = sizes.small(name, pattern.kept(name, columns[name], chosen), s)
        elif name in depth_names and isinstance(value, int):
            small[name] = len(chosen)
        elif name in config.sub_configs and full.get(name) is not None:
            small[name] = shrink(value, raw[name] if isinstance(raw.get(name), dict) else raw)
        elif name.startswith("rope") and isinstance(value, dict):
            if rotary or "original_max_position_embeddings" in str(value):
                small[name] = _rope(value, s)
        elif not stated and name in ONES and _is_one(value):
            small[name] = copy.copy(ONES[name])
        elif not stated and (defaults[name] is None or defaults[name] is MISSING):
            continue
        elif name not in own and isinstance(value, list) and depth and len(value) >= depth:
            continue
        elif name == "partial_rotary_factor" and value is not None:
            small[name] = sizes.rotary_factor(value, s.small_head_dim)
        elif name == "attention_multiplier":
            small[name] = value * s.head_dim / s.small_head_dim
        else:
            small[name] = sizes.small(name, value, s)
    small.update(sizes.token_ids(small))
    small["dtype"] = "float32"
    return {name: value for name, value in small.items() if name not in own or value != defaults[name] or name in names}


def left(config: PreTrainedConfig, full: PreTrainedConfig) -> dict[str, Any]:
    """Sizes that the class derived and that are still the full-size config's, since they follow from no other entry."""
    s = sizes.sizes(vars(full))
    found = {}
    for field in fields(type(config)):
        value = vars(config).get(field.name)
        if _default(field) is None and isinstance(value, int) and value == vars(full).get(field.name):
            if (small := sizes.small(field.name, value, s)) != value:
                found[field.name] = small
    return found


def _default(field: Any) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _is_one(value: Any) -> bool:
    return value == 1 or (isinstance(value, (list, tuple)) and all(v == 1 for v in value))


def _rope(parameters: dict[str, Any], s: sizes.Sizes) -> dict[str, Any]:
    """Rotary parameters at the twin's head width: lists with an entry a frequency are thinned out."""
    small = copy.deepcopy(parameters)
    for name, value in parameters.items():
        if isinstance(value, dict):
            small[name] = _rope(value, s)
        elif name == "mrope_section":
            small[name] = _split(value, sum(value) * s.small_head_dim // s.head_dim)
        elif isinstance(value, list) and name.endswith("_factor"):
            count = len(value) * s.small_head_dim // s.head_dim
            small[name] = [value[round(i * (len(value) - 1) / (count - 1))] for i in range(count)]
        elif name == "partial_rotary_factor":
            small[name] = sizes.rotary_factor(value, s.small_head_dim)
        else:
            small[name] = sizes.small(name, value, s)
    return small


def _split(sections: list[int], total: int) -> list[int]:
    """Sections in the same proportion with another sum, none empty."""
    ends = [math.floor(sum(sections[: i + 1]) * total / sum(sections) + 0.5) for i in range(len(sections))]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]
