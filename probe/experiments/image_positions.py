"""The positions of the tokens of an image, and of the text after it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch

from ..instruments.tap import removed
from ..measure.images import prepared
from ..measure.run import Run
from ..schema import Fact
from .rotary_modules import rotary_modules


class _Known(Exception):
    """Stops a forward at the first text block: all that is asked is known by then."""


def image_positions(run: Run) -> list[Fact]:
    """How positions go on behind an image; nothing where no image can be read, or no positions were seen."""
    given = prepared(run)
    if given is None:
        return []
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
