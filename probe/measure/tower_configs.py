"""The numbers of a tower that was built from a config and not run, by equations that held on a run of its class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ..standard import StandardizedTransformer
from .tower_numbers import Numbers
from .tower_pooling import Average
from .tower_positions import Added, Turning

POOLING = ("pool", "shuffle", "merge", "downsample")
"""What the names of config entries hold that say how many patches make a token."""

FORMS: dict[str, Callable[[float], float]] = {
    "{key}**2": lambda v: v**2,
    "1 / {key}**2": lambda v: v**-2,
    "{key}": lambda v: v,
}
"""How such an entry may give the number of patches a token."""


def pooling(numbers: Numbers) -> tuple[str, Callable[[Any], float]] | None:
    """The config entry that gives the measured number of patches a token, in words, and its value on another config."""
    for key, value in _entries(numbers.config):
        if (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and value
            and any(word in key for word in POOLING)
        ):
            for form, of in FORMS.items():
                if abs(of(value) - numbers.ratio) < 1e-6:
                    return form.format(key=key), lambda config, key=key, of=of: of(getattr(config, key))
    return None


def _entries(config: Any) -> Iterator[tuple[str, Any]]:
    yield from sorted(config.to_dict().items())


def derive_for(numbers: Numbers, model: StandardizedTransformer, seen_on: str) -> Numbers:
    """The numbers of a config's tower, by the equations that hold on the run behind it.

    What the config does not determine is None; what only the run showed stays as the run showed it.
    """
    tower, config = model.vision, model.vision._module.config
    patches, grid, length, budget = _layout(numbers, model)
    ratio, tokens = numbers.ratio, None
    entry = pooling(numbers)
    side_tokens = _tokens_entry(numbers)
    if entry is not None:
        ratio = entry[1](config)
    if patches is not None and grid is not None:
        tokens = (
            int(getattr(model._module.config, side_tokens))
            if side_tokens
            else int(patches / ratio)
            if entry is not None
            else None
        )
        ratio = patches / tokens if tokens else ratio
    head = tower.head_dim
    return replace(
        numbers,
        blocks=len(tower.layers),
        patches=patches,
        grid=grid,
        length=length,
        budget=budget,
        padded=None,
        added=_with_shape(numbers.added, model),
        turning=tuple(_widened(found, head) for found in numbers.turning[:1]),
        after=tuple(replace(step, rows_in=None, rows_out=None, shape=()) for step in numbers.after),
        tokens=tokens,
        ratio=ratio,
        average=_rescaled(numbers, ratio, tower.vision_hidden_size),
        shapes={},
        config=config,
        root_config=model._module.config,
        seen_on=seen_on,
    )


def _layout(
    numbers: Numbers, model: StandardizedTransformer
) -> tuple[int | None, tuple[int, int] | None, int | None, str | None]:
    """Patches, grid and length of a row on another config, where an equation that held on the run gives them."""
    tower, before = model.vision, numbers.config
    size, was = tower.image_size, getattr(before, "image_size", None)
    if size is not None and was is not None and numbers.grid is not None and not numbers.varies:
        if numbers.grid == (was // before.patch_size,) * 2:
            side = size // tower.patch_size
            return side**2, (side, side), side**2 + len(numbers.class_rows), None
    entry = pooling(numbers)
    tokens = getattr(tower._module.config, "default_output_length", None)
    if numbers.varies and entry is not None and tokens is not None:
        length = round(tokens * entry[1](tower._module.config))
        return length, None, length, f"default_output_length of {tokens} tokens, {entry[0]} patches each"
    return None, None, None, None


def _tokens_entry(numbers: Numbers) -> str | None:
    """The root's config entry that gives the image tokens of a row, if one does."""
    for key, value in _entries(numbers.root_config):
        if "tokens_per_image" in key and value == numbers.tokens:
            return key
    return None


def _with_shape(found: Added | None, model: StandardizedTransformer) -> Added | None:
    if found is None or found.table is None:
        return found
    return replace(found, table_shape=tuple(model.vision._module.get_parameter(found.table).shape))


def _widened(found: Turning | None, head_dim: int) -> Turning | None:
    """The same halves of a head of another width; None where they are no halves."""
    if found is None or found.head_dim == head_dim:
        return found
    half, was = head_dim // 2, found.head_dim // 2
    ranges = {tuple(range(was)): tuple(range(half)), tuple(range(was, 2 * was)): tuple(range(half, 2 * half)), (): ()}
    if found.columns not in ranges or found.rows not in ranges:
        return None
    return replace(found, columns=ranges[found.columns], rows=ranges[found.rows], head_dim=head_dim)


def _rescaled(numbers: Numbers, ratio: float, width: int) -> Average | None:
    """The average at another width, where its factor was the root of the run's width; None otherwise."""
    found, was = numbers.average, numbers.config.hidden_size
    if found is None or abs(found.factor - was**0.5) > 1e-3 * found.factor:
        return None
    return replace(found, side=round(ratio**0.5), factor=width**0.5)
