"""Builds a twin of any decoder: its config shrunk, its real class, lively weights."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from transformers import logging
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from probe.checkpoints import classes, tokens, twins
from probe.checkpoints.factory import lively, quantized, shrink, sources
from probe.checkpoints.factory.adjust import ADJUST
from probe.checkpoints.published import published
from probe.checkpoints.repairs import repair
from probe.prompt import PROMPT

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedConfig, PreTrainedModel


def build_config(model_type: str, name: str = "tiny", overrides: Mapping[str, Any] | None = None) -> PreTrainedConfig:
    """The small config of a twin; `overrides` are dotted below the root (``text_config.sliding_window``)."""
    stem = sources.twin(model_type, name)
    root = sources.root_type(model_type)
    config_class = CONFIG_MAPPING[root]
    raw = copy.deepcopy(published(stem).config) if stem else {}
    if stem and raw.get("model_type") != root and isinstance(raw.get("text_config"), dict):
        raw = raw["text_config"]
    with quietly():
        full = config_class(**copy.deepcopy(raw))
        small = shrink.shrink(full, raw)
        adjusted = [*_adjusted(model_type), *_adjusted(f"{model_type}/{name}"), *(overrides or {}).items()]
        for path, value in adjusted:
            _set(small, path, value)
        config = config_class(**copy.deepcopy(small))
        rest = {key: value for key, value in shrink.left(config, full).items() if key not in small}
        return config_class(**small, **rest) if rest else config


def _adjusted(key: str) -> list[tuple[str, Any]]:
    return list(ADJUST[key][0].items()) if key in ADJUST else []


def _set(small: dict[str, Any], path: str, value: Any) -> None:
    *parents, key = path.split(".")
    for parent in parents:
        small = small.setdefault(parent, {})
    small[key] = copy.deepcopy(value)


def build(
    model_type: str, name: str = "tiny", *, attn: str = "eager", overrides: Mapping[str, Any] | None = None
) -> PreTrainedModel:
    """A twin on the CPU in float32, eval mode, no gradients."""
    config = build_config(model_type, name, overrides)
    config._attn_implementation = attn
    repair(config)
    with quietly(), twins.uninitialised(), _marked():
        model = model_class(config)(config)
        quantized.replace_linears(model)
    model.tie_weights()
    lively.fill(model)
    quantized.round_weights(model)
    return model.eval().requires_grad_(False)


def model_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """The class that generates text from a config: a decoder's own, else its wrapper's."""
    if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        found = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
        return found[0] if isinstance(found, (list, tuple)) else found
    return classes.model_class(config)


@contextlib.contextmanager
def _marked() -> Iterator[None]:
    """Memory that a constructor leaves uninitialised holds NaN inside, so that no left-over is taken for a value."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """transformers warns inside about nothing less than an error: a twin's ids and lengths are meant."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def inputs(module: nn.Module) -> dict[str, Any]:
    """A prompt of 35 tokens, longer than any twin's window or chunk: the beginning of a sequence, then bytes."""
    vocab = module.config.get_text_config(decoder=True).vocab_size
    ids = [tokens.BOS, *((tokens.FIRST_BYTE + byte) % vocab for byte in PROMPT.encode())]
    input_ids = torch.tensor([ids])
    return {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids), "use_cache": False}
