"""The twins that see, as they are and mutated, for the tables on vision."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.experiments.pairs.build import Mutate, Twin


def changed(family: str, name: str, mutate: Mutate | None = None, process: Mutate | None = None) -> Twin:
    """A twin with its model or its processor changed."""
    return Twin(family, name, mutate=mutate, process=process)


gemma3 = partial(changed, "gemma3_text", "tiny-vision")
gemma4 = partial(changed, "gemma4_text", "tiny-vision")
llama4 = partial(changed, "llama4_text", "tiny-vision")
mixture = partial(changed, "gemma4_text", "tiny-moe")

GEMMA3, GEMMA4, LLAMA4, MIXTURE = gemma3(), gemma4(), llama4(), mixture()


def tower(module: Any) -> Any:
    """The native vision tower."""
    return getattr(module, "vision_model", None) or module.model.vision_tower
