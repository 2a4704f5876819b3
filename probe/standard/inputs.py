"""What a checkpoint is run on: the prompt, and its model inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..checkpoints.tokens import IMAGE
from ..errors import ProbeError
from ..prompt import PROMPT
from .trace import Inputs

if TYPE_CHECKING:
    from .transformer import StandardizedTransformer

IMAGE_PROMPT = "{image} The Eiffel Tower"


def prepare(model: StandardizedTransformer, prompt: str | None = None) -> tuple[str, Inputs]:
    """The prompt a checkpoint is measured on, and its model inputs: with an image where the checkpoint sees."""
    loaded = model.loaded
    if prompt is not None and not prompt.strip():
        raise ProbeError("The prompt is empty; give one with --prompt, or leave it out for the probe's own.")
    if prompt is not None and not _is_text(prompt):
        raise ProbeError("The prompt is no text in UTF-8; give one that is with --prompt.")
    if loaded.processor is None and model.has_vision:
        raise ProbeError(
            f"{loaded.target.id} sees images, but its processor cannot be loaded here; install what it needs."
        )
    if loaded.tokenizer is None:
        return _without_tokenizer(model, prompt)
    if loaded.processor is None:
        text = prompt or PROMPT
        return text, _placed(model, loaded.tokenizer(text, return_tensors="pt"))
    from ..checkpoints.images import test_image

    text = prompt or IMAGE_PROMPT.format(image=image_marker(loaded))
    return text, _placed(model, loaded.processor(text=text, images=[test_image()], return_tensors="pt"))


def _is_text(prompt: str) -> bool:
    """Whether a prompt has no bytes that the command line could not decode."""
    return not any("\ud800" <= character <= "\udfff" for character in prompt)


def _without_tokenizer(model: StandardizedTransformer, prompt: str | None) -> tuple[str, Inputs]:
    """Token ids for a checkpoint that brings no tokenizer."""
    if prompt is not None:
        raise ProbeError(
            f"{model.loaded.target.id} has no tokenizer, so a prompt cannot be read: put tokenizer.json and "
            "tokenizer_config.json beside its weights, or leave --prompt out."
        )
    ids = torch.arange(1, 33)[None] % model.vocab_size
    return "token ids 1 to 32: the checkpoint has no tokenizer", _placed(
        model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    )


def _placed(model: StandardizedTransformer, encoding: Any) -> Inputs:
    """An encoding on the model's device, with pixels in the weights' dtype: not every wrapper casts them."""
    dtype = next(p.dtype for p in model._module.parameters() if p.is_floating_point())
    return {
        name: tensor.to(model.device, dtype if tensor.is_floating_point() else None)
        if isinstance(tensor, torch.Tensor)
        else tensor
        for name, tensor in dict(encoding).items()
    }


def image_marker(loaded: Any) -> str:
    """What stands for one image in a prompt."""
    if loaded.target.kind == "tiny":
        return IMAGE
    return str(loaded.processor.image_token)
