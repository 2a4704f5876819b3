"""Twins shared by the tests of loading, and directories they are saved to."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from probe.checkpoints import Loaded, Target, load

PROMPT = "The Eiffel Tower is in the city of"


@cache
def _loaded(family: str, name: str) -> Loaded:
    return load(Target(family, name, "tiny"))


@pytest.fixture(scope="session")
def twin() -> Callable[[str, str], Loaded]:
    """A twin by family and name, built once."""
    return _loaded


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """llama/tiny as `save_pretrained` writes it, tokenizer included. Treat it as read-only."""
    path = tmp_path_factory.mktemp("saved") / "my-llama"
    loaded = _loaded("llama", "tiny")
    loaded.module.save_pretrained(path)
    loaded.tokenizer.save_pretrained(path)
    return path


def logits(loaded: Loaded, text: str = PROMPT) -> torch.Tensor:
    """The logits of a prompt, [seq, vocab_size], on a text model or a wrapper without an image."""
    inputs = loaded.tokenizer(text, return_tensors="pt")
    if loaded.processor is not None:
        inputs = loaded.processor(text=text, return_tensors="pt")
    inputs.pop("aspect_ratios", None)
    with torch.no_grad():
        return loaded.module(**inputs).logits[0].float()
