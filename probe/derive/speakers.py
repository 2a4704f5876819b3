"""Who says a size: the attribute of a module, the feature count of a layer in it, or the config entry, found by value.

A size is measured on a tensor. On a build that cannot run, and in a module that a person will read, it has to be said
by something that is there without a run; what says the same number under a fitting name on the twin is taken for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

SAYS: dict[str, str] = {
    "num_heads": r"^((root\.text_)?config\.)?(num_(attention_)?heads|n_heads?|heads)$",
    "num_kv_heads": r"(kv_heads|key_value_heads|kv_n_heads)",
    "head_dim": r"(v_head_dim$|head_(dim|size)$|value_head_dim$|dim_head$)",
    "qk_head_dim": r"(qk_head_dim$|^((root\.text_)?config\.)?head_(dim|size)$|key_head_dim$|dim_head$)",
    "intermediate_size": r"(intermediate_size|ffn|dff|dim_ff|inner)",
    "num_experts": r"(num_(local_|routed_)?experts$|n_routed_experts|moe_num_experts|num_total_experts|n_experts)",
    "top_k": r"(top_?k$|experts_per_tok$|moe_k$)",
}
"""Size -> the names under which a module or a config may say it."""

CONFIGS = ("config", "root.text_config")
"""The config that a module keeps, and the model's where it keeps none."""

WIDTHS = tuple(f"{config}.{name}" for config in CONFIGS for name in ("hidden_size", "n_embd", "d_model"))
HEADS = tuple(
    f"{config}.{name}" for config in CONFIGS for name in ("num_attention_heads", "n_head", "n_heads", "num_heads")
)

FEATURES = ("in_features", "out_features", "nx", "nf")
"""How layers say what they take and give: torch's linear layer, and GPT-2's."""

Said = dict[str, int]


def speaker(model: torch.nn.Module, path: str) -> Said:
    """The whole numbers that a module says: its attributes, its layers' features, and its config's entries.

    Returns:
        Expression -> number: on the module (``num_heads``, ``down_proj.in_features``, ``config.num_attention_heads``),
        or on the host where the module keeps no config (``root.text_config.num_attention_heads``).
    """
    module: Any = model.get_submodule(path)
    native: Any = model
    found = {name: value for name, value in vars(module).items() if type(value) is int}
    for name, child in module.named_children():
        for side in FEATURES:
            if type(getattr(child, side, None)) is int and name.isidentifier():
                found[f"{name}.{side}"] = getattr(child, side)
    config = getattr(module, "config", None)
    own, others = CONFIGS
    if config is None:
        own, config = others, native.config.get_text_config(decoder=True)
    return found | {f"{own}.{name}": value for name, value in _entries(config)}


def _entries(config: Any, prefix: str = "") -> Iterator[tuple[str, int]]:
    """The whole numbers that a config gives as its attributes."""
    for name in config.to_dict():
        try:
            value = getattr(config, name)
        except (AttributeError, ValueError, RuntimeError):  # an entry that differs by block has no number of its own
            continue
        if type(value) is int:
            yield f"{prefix}{name}", value
        elif name.endswith("_config") and hasattr(value, "to_dict"):
            yield from _entries(value, f"{prefix}{name}.")


def fitting(name: str, size: int, twin: Said) -> list[str]:
    """What says a size of that name on the twin, the plainest first."""
    same = [said for said, value in twin.items() if value == size]
    if name == "intermediate_size":
        features = [said for said in same if said.endswith(FEATURES)]
        if features:
            return sorted(features, key=lambda said: "down" not in said)
    found = [said for said in same if re.search(SAYS[name], said)]
    if name == "num_kv_heads" and not found:
        found = [said for said in same if re.search(SAYS["num_heads"], said)]
    return found


@dataclass(frozen=True)
class Candidate:
    """What may say a size: one number, or one that is divided by another."""

    said: str
    over: str | None = None

    def of(self, model: Said) -> int | None:
        """The size of a module; None where it does not say it."""
        if self.said not in model:
            return None
        if self.over is None:
            return model[self.said]
        return model[self.said] // model[self.over] if model.get(self.over) else None

    def __str__(self) -> str:
        whole = _attribute(self.said)
        return whole if self.over is None else f"{whole} // {_attribute(self.over)}"


def _attribute(said: str) -> str:
    return f"self.{said}" if said.startswith("root.") else f"self._module.{said}"


def candidates(name: str, size: int, twin: Said) -> Iterator[Candidate]:
    """What says a size of that name on the twin, the plainest first."""
    yield from map(Candidate, fitting(name, size, twin))
    if "head_dim" in name:  # the model's width over its heads
        for width in WIDTHS:
            for heads in HEADS:
                if width in twin and heads in twin and twin[width] == size * twin[heads]:
                    yield Candidate(width, heads)


def said(name: str, size: int, twin: Said, model: Said) -> int | None:
    """The size of another model of the same class; None where nothing of a fitting name says the twin's."""
    found = (candidate.of(model) for candidate in candidates(name, size, twin))
    return next((number for number in found if number is not None), None)
