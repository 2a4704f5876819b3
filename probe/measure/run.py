"""One run of one checkpoint: the model, what it was given, every value it passed, and how its blocks are wired.

Identities, edits and experiments all work on a :class:`Run`; what it holds was measured in two forward passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from nnsight.intervention.envoy import Envoy

from ..errors import ProbeError
from ..prompt import PROMPT
from ..standard import StandardizedTransformer
from .anatomy import BlockAnatomy, Term, Underivable, derive
from .default import switch
from .trace import Inputs, Key, Readings, read_all

IMAGE_PROMPT = "{image} The Eiffel Tower"
CLOSE = 1e-5
"""Largest relative difference at which two tensors of one float32 run count as the same."""


@dataclass
class Contribution:
    """What one sublayer adds: the derived term, and the standard value that was found to hold it."""

    term: Term
    host: str
    name: str


@dataclass
class Stack:
    """A stack of blocks, of the text model or of the vision tower, with what was read of it."""

    label: str
    envoys: list[Envoy]
    anatomy: list[BlockAnatomy]
    readings: Readings
    used: set[tuple[str, str]] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.envoys)

    def host(self, name: str) -> str:
        return f"{self.label}.{name}" if name else self.label

    def get(self, index: int, host: str, name: str) -> torch.Tensor | None:
        """A value of block ``index`` in float32, or None where the block has none."""
        value = self.readings.get(Key(self.host(host), index, name))
        if value is None:
            return None
        self.used.add((self.host(host), name))
        return value.float() if value.is_floating_point() else value

    @cached_property
    def contributions(self) -> list[list[Contribution]]:
        """For each block its contributions, each derived term matched with the declared value that holds it.

        Raises:
            ProbeError: no declared value holds a term; the message gives both readings.
        """
        return [[self._match(index, term) for term in anatomy.terms] for index, anatomy in enumerate(self.anatomy)]

    def _match(self, index: int, term: Term) -> Contribution:
        here = [key for key in self.readings if key.block == index and key.host.startswith(self.label)]
        candidates = [key for key in here if key.name in CONTRIBUTIONS]
        for key in candidates:
            held = self.readings[key]
            if held.numel() == term.tensor.numel() and same(held.reshape(term.tensor.shape), term.tensor):
                return Contribution(term, key.host.removeprefix(self.label).lstrip("."), key.name)
        raise ProbeError(
            f"Block {index} of {self.label}: derived from the run, it adds the output of {term.leaf!r}; declared, its "
            f"contributions are {', '.join(f'{key.host}.{key.name}' for key in candidates)}, and none of them is that "
            "tensor. Correct the family module."
        )


CONTRIBUTIONS = ("attention_output", "mlp_output", "per_layer_output", "branch_output")
"""The names under which a family may declare a contribution to the stream."""


@dataclass
class Run:
    """What was measured on one loaded checkpoint."""

    model: StandardizedTransformer
    prompt: str
    inputs: Inputs
    readings: Readings
    text: Stack
    vision: Stack | None
    used: set[tuple[str, str]] = field(default_factory=set)

    def stacks(self) -> Iterator[Stack]:
        yield self.text
        if self.vision is not None:
            yield self.vision

    def root(self, name: str, host: str = "model") -> Any:
        """A value of the root, or of the tower, in float32; None where this load has none."""
        value = self.readings.get(Key(host, None, name))
        self.used.add((host, name))
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value.float()
        return value

    @cached_property
    def dtype(self) -> torch.dtype:
        """Of the checkpoint's first floating parameter."""
        return next(p.dtype for p in self.model._module.parameters() if p.is_floating_point())


def prepare(model: StandardizedTransformer, prompt: str | None = None) -> tuple[str, Inputs]:
    """The prompt a checkpoint is measured on, and its model inputs: with an image where the checkpoint sees."""
    loaded = model.loaded
    if prompt is not None and not prompt.strip():
        raise ProbeError("The prompt is empty; give one with --prompt, or leave it out for the probe's own.")
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
        from ..checkpoints.tokens import IMAGE

        return IMAGE
    return str(loaded.processor.image_token)


def measure(model: StandardizedTransformer, prompt: str | None = None) -> Run:
    """Read every value under eager attention and derive the wiring: two forward passes.

    Raises:
        ProbeError: the wiring of a block could not be derived, or contradicts what the family module declares.
    """
    text, inputs = prepare(model, prompt)
    switch(model._module, "eager")
    readings = read_all(model, inputs)
    towers = [("model.layers[i]", list(model.layers))]
    if model.has_vision:
        towers.append(("model.vision.layers[i]", list(model.vision.layers)))
    try:
        blocks = [envoy._module for _, envoys in towers for envoy in envoys]
        every = derive(blocks, lambda: model._module(**inputs, use_cache=False))
    except Underivable as error:
        raise ProbeError(f"{model.loaded.target.id}: {error}.") from error
    stacks = []
    for label, envoys in towers:
        stacks.append(Stack(label, envoys, every[: len(envoys)], readings))
        every = every[len(envoys) :]
    return Run(model, text, inputs, readings, stacks[0], stacks[1] if len(stacks) > 1 else None)


def same(left: torch.Tensor, right: torch.Tensor, tolerance: float = CLOSE) -> bool:
    """Whether two tensors agree up to ``tolerance`` times their scale."""
    if left.shape != right.shape:
        return False
    scale = max(float(right.abs().max()), 1e-30)
    return float((left.float() - right.float()).abs().max()) <= tolerance * scale
