"""Who says a size: the attribute of a module, the feature count of a layer in it, or the config entry, found by value.

A size is measured on a tensor. On a build that cannot run, and in a module that a person will read, it has to be said
by something that is there without a run; what says the same number under a fitting name on the twin is taken for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch

SAYS: dict[str, str] = {
    "num_heads": r"^(config\.)?(num_(attention_)?heads|n_heads?|heads)$",
    "num_kv_heads": r"(kv_heads|key_value_heads|kv_n_heads)",
    "head_dim": r"(v_head_dim$|head_(dim|size)$|value_head_dim$)",
    "qk_head_dim": r"(qk_head_dim$|^(config\.)?head_(dim|size)$|key_head_dim$)",
    "intermediate_size": r"(intermediate_size|ffn|inner)",
    "num_experts": r"(num_(local_|routed_)?experts$|n_routed_experts|moe_num_experts|num_total_experts|n_experts)",
    "top_k": r"(top_?k$|experts_per_tok$|moe_k$)",
}
"""Size -> the names under which a module or a config may say it."""

WIDTHS = ("config.hidden_size", "config.n_embd", "config.d_model")
HEADS = ("config.num_attention_heads", "config.n_head", "config.n_heads", "config.num_heads")

Said = dict[str, int]


def speaker(model: torch.nn.Module, path: str) -> Said:
    """The whole numbers that a module says: its attributes, its layers' features, and its config's entries.

    Returns:
        Expression after ``self._module.`` -> number, e.g. ``num_heads``, ``down_proj.in_features``,
        ``config.num_attention_heads``.
    """
    module: Any = model.get_submodule(path)
    native: Any = model
    found = {name: value for name, value in vars(module).items() if type(value) is int}
    for name, child in module.named_children():
        for side in ("in_features", "out_features"):
            if type(getattr(child, side, None)) is int and name.isidentifier():
                found[f"{name}.{side}"] = getattr(child, side)
    config = getattr(module, "config", None)
    entries = (config or native.config.get_text_config(decoder=True)).to_dict()
    return found | {f"config.{name}": value for name, value in _entries(entries)}


def _entries(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, int]]:
    for name, value in config.items():
        if type(value) is int:
            yield f"{prefix}{name}", value
        elif isinstance(value, dict) and name.endswith("_config"):
            yield from _entries(value, f"{prefix}{name}.")


def fitting(name: str, size: int, twin: Said) -> list[str]:
    """What says a size of that name on the twin, the plainest first."""
    same = [said for said, value in twin.items() if value == size]
    if name == "intermediate_size":
        features = [said for said in same if said.endswith("_features")]
        if features:
            return sorted(features, key=lambda said: "down" not in said)
    found = [said for said in same if re.search(SAYS[name], said)]
    if name == "num_kv_heads" and not found:
        found = [said for said in same if re.search(SAYS["num_heads"], said)]
    return found


def said(name: str, size: int, twin: Said, model: Said) -> int | None:
    """The size of another model of the same class; None where nothing of a fitting name says the twin's."""
    for found in fitting(name, size, twin):
        if found in model:
            return model[found]
    for width, heads in _quotients(name, size, twin):
        if width in model and heads in model:
            return model[width] // model[heads]
    return None


def expression(name: str, size: int, twin: Said) -> str | None:
    """The size as an expression on ``self._module``; None where nothing of a fitting name says it."""
    for found in fitting(name, size, twin):
        return f"self._module.{found}"
    for width, heads in _quotients(name, size, twin):
        return f"self._module.{width} // self._module.{heads}"
    return None


def _quotients(name: str, size: int, twin: Said) -> Iterator[tuple[str, str]]:
    """The model's width over its heads, where that is the width of a head."""
    if "head_dim" in name:
        for width in WIDTHS:
            for heads in HEADS:
                if width in twin and heads in twin and twin[width] == size * twin[heads]:
                    yield width, heads
