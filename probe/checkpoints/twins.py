"""Tiny twins: a family's real class at small sizes, shrunk from a published config, with lively seeded weights.

What a twin keeps and what it shrinks is declared in the family module's ``TWINS``:

``config``  file name, without ``.json``, of the published config under ``families/configs``
``part``    ``text_config`` for the text model of a wrapper alone
``root``, ``text``, ``vision``  keys that replace the published ones; ``layer_types`` repeats up to the last block
``rope``    keys that replace those of the published rotary scaling
``image``   sizes of the image processor, see `images`

For ``text``, ``vision`` and ``image`` another twin's name stands for that twin's part.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import initialization

from probe import registry
from probe.checkpoints import classes, digest, tokens
from probe.checkpoints.fill import fill
from probe.checkpoints.published import published
from probe.checkpoints.repairs import repair
from probe.errors import ProbeError

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedConfig

LOCK = Path(__file__).with_name("twins.lock.json")
"""The pinned digest of each twin, ``family/name`` -> sha256 of its weights."""

Overrides = Mapping[str, Any]


def spec(family: str, name: str) -> dict[str, Any]:
    """The declaration of a twin. Raises: ProbeError if the family has no such twin."""
    twins = _twins(family)
    if name not in twins:
        raise ProbeError(f"{family} has no twin named {name!r}; it has {', '.join(twins)}.")
    return twins[name]


@cache
def _twins(family: str) -> dict[str, dict[str, Any]]:
    """A family's declarations, with a part that is another twin's name replaced by that twin's part."""
    declared = registry.get(family).twins
    return {name: {key: _part(declared, key, value) for key, value in twin.items()} for name, twin in declared.items()}


def _part(declared: dict[str, dict[str, Any]], key: str, value: Any) -> Any:
    return declared[value][key] if key in ("text", "vision", "image") and isinstance(value, str) else value


def build_config(family: str, name: str, overrides: Overrides | None = None) -> PreTrainedConfig:
    """The shrunken config of a twin.

    Args:
        overrides: config values to change, dotted below the root (``text_config.sliding_window``); on a text-only
            twin the keys of the text config itself.
    """
    twin = spec(family, name)
    raw = copy.deepcopy(published(twin["config"]).config)
    text = raw.get("text_config", raw)
    if "part" in twin:
        raw = text = raw[twin["part"]]
    text.update(twin.get("text", {}), vocab_size=tokens.VOCAB_SIZE)
    if "layer_types" in text:
        pattern = text["layer_types"]
        text["layer_types"] = [pattern[i % len(pattern)] for i in range(text["num_hidden_layers"])]
    if "vocab_size_per_layer_input" in text:
        text["vocab_size_per_layer_input"] = tokens.VOCAB_SIZE
    if "rope" in twin:
        text["rope_scaling"] = {**text["rope_scaling"], **twin["rope"]}
    text.update(bos_token_id=tokens.BOS, eos_token_id=tokens.EOS, pad_token_id=tokens.PAD)
    raw.update(twin.get("root", {}))
    if "vision_config" in raw:
        raw["vision_config"].update(twin.get("vision", {}))
    raw.update({key: value for key, value in tokens.config_ids(raw["model_type"]).items() if key in raw})
    for part in (raw, text, raw.get("vision_config") or {}):
        part.pop("torch_dtype", None)
        part["dtype"] = "float32"
    for path, value in (overrides or {}).items():
        _set(raw, path, value)
    return classes.config_from(raw)


def _set(raw: dict[str, Any], path: str, value: Any) -> None:
    *parents, key = path.split(".")
    for parent in parents:
        raw = raw[parent]
    raw[key] = value


def build(family: str, name: str, overrides: Overrides | None = None, attn: str = "eager") -> nn.Module:
    """A twin on the CPU in float32, eval mode, no gradients.

    Args:
        overrides: config values to change, see `build_config`; the result then has no pinned digest.
        attn: attention implementation.
    """
    config = build_config(family, name, overrides)
    config._attn_implementation = attn
    repair(config)
    with uninitialised():
        model = classes.model_class(config)(config)
    model.tie_weights()
    fill(model)
    return model.eval().requires_grad_(False)


@contextlib.contextmanager
def uninitialised(dtype: torch.dtype = torch.float32) -> Iterator[None]:
    """Models built inside are of that dtype and get no initial weights, from torch or from transformers."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with initialization.no_init_weights():
            yield
    finally:
        torch.set_default_dtype(before)


@cache
def _lock() -> dict[str, str]:
    return json.loads(LOCK.read_text()) if LOCK.exists() else {}


def verified_digest(family: str, name: str, model: nn.Module) -> str:
    """The digest of a twin's weights, after comparing it with the pinned one.

    Raises:
        ProbeError: the twin is not the pinned one.
    """
    found = digest.of_weights(model)
    pinned = _lock().get(f"{family}/{name}")
    if pinned != found:
        raise ProbeError(
            f"The twin {family}/{name} is not the pinned one ({found[:12]}, pinned {(pinned or 'nothing')[:12]}): "
            "if its config or weights were changed on purpose, run `python -m probe.checkpoints.pin` and probe again."
        )
    return found
