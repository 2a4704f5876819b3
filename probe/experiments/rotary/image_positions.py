"""The positions of the tokens of an image, and of the text after it; or why no image was read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch

from ...instruments.tap import removed
from ...measure.images import prepared
from ...measure.listing import listed
from ...measure.run import Run
from ...schema import Fact
from .modules import rotary_modules


class _Known(Exception):
    """Stops a forward at the first text block: all that is asked is known by then."""


def image_positions(run: Run) -> list[Fact]:
    """How positions go on behind an image; why none was read, where images belong to the family; nothing where they do
    not, or no positions were seen.
    """
    given = prepared(run)
    if given is None:
        return [*_no_image(run)]
    inputs = given[2]
    [image] = (inputs["input_ids"] == run.model._module.config.image_token_id).int()
    places = image.nonzero().flatten().tolist()
    found = _positions(run, inputs, len(image))
    if found is None or not places or places[-1] + 1 >= len(image):
        return []
    after, streams = places[-1] + 1, found.reshape(-1, len(image))
    next_ = sorted(set(streams[:, after].tolist()))
    if len(next_) != 1:
        return []
    taken = streams[:, places]
    behind = after - next_[0]
    if not behind:
        said = (
            f"Positions count every token of an image: the text after an image of {len(places)} tokens goes on at its "
            f"place in the row, {after}."
        )
    else:
        rule = "one past the largest of these" if next_[0] == int(taken.max()) + 1 else "elsewhere"
        said = (
            f"An image of {len(places)} tokens, at places {places[0]} to {places[-1]} of the row, takes the positions "
            f"{int(taken.min())} to {int(taken.max())}; the text after it goes on {rule}, at {next_[0]} and not at its "
            f"place, {after}."
        )
    measured = {"tokens": len(places), "place": after, "position": next_[0]}
    return [Fact(name="positions_after_image", label="Positions after an image", value=behind, unit="positions behind",
                 measured=measured, statement=said)]  # fmt: skip


def _no_image(run: Run) -> Iterator[Fact]:
    config, text, name = run.model.loaded.config, run.model.text_config, type(run.model._module).__name__
    wrappers = _joining(type(text))
    if _seeing(type(config)):
        said = f"No image was read: `{name}` has a vision encoder, and nothing here makes its inputs of an image."
    elif wrappers:
        joined = listed([f"`{each}`" for each in wrappers])
        said = f"No image was read: `{name}` is a text model alone, which {joined} joins with a vision encoder."
    else:
        return
    yield Fact(name="image_read", label="An image was read", value=False, statement=said)


def _joining(text: type[Any]) -> list[str]:
    """The configs beside a text model's own that hold it and a vision encoder's."""
    beside = vars(sys.modules[text.__module__]).items()
    found = {name: each for name, each in beside if isinstance(each, type) and text in _parts(each).values()}
    return [name for name, each in found.items() if _seeing(each)]


def _seeing(config: type[Any]) -> bool:
    return any("vision" in name for name in _parts(config))


def _parts(config: type[Any]) -> dict[str, type[Any]]:
    return getattr(config, "sub_configs", None) or {}


def _positions(run: Run, inputs: dict[str, Any], length: int) -> torch.Tensor | None:
    """The position ids that the rotary modules beside the blocks or the first block are called with."""
    seen: list[torch.Tensor] = []

    def note(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for value in (kwargs.get("position_ids"), *args):
            if isinstance(value, torch.Tensor) and not value.is_floating_point() and value.shape[-1:] == (length,):
                seen.append(value)

    def stop(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        note(module, args, kwargs)
        raise _Known

    with ExitStack() as stack:
        for _, module in rotary_modules(run):
            stack.enter_context(removed(module.register_forward_pre_hook(note, with_kwargs=True)))
        first = run.text.envoys[0]._module
        stack.enter_context(removed(first.register_forward_pre_hook(stop, with_kwargs=True)))
        try:
            with torch.no_grad():
                run.model._module(**inputs, use_cache=False)
        except _Known:
            pass
    return seen[0] if seen else None
