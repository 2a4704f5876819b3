"""What modules make of positions for a rotary attention, called by themselves: whether turning also makes longer, and
whether the frequencies depend on how far a call reaches.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator

import torch

from ...instruments.extra import layer_types, once
from ...measure.rounding import digits
from ...measure.run import Run
from ...schema import Fact
from ..answers import entry
from .frequencies import rescaled_rotary, rope_entries

CLOSE = 1e-5
"""How far cos² + sin² may be from one number for all positions and pairs."""

REACHES = ("original_max_position_embeddings", "max_position_embeddings")
"""Entries of a config at which frequencies may change."""


def rotary_facts(run: Run) -> list[Fact]:
    """Those that apply."""
    return [*_lengths(run), *_switches(run)]


@once
def rotary_modules(run: Run) -> list[tuple[str, torch.nn.Module]]:
    """The modules beside the blocks, or in them, that are called with positions and have no weights, by native path."""
    module = run.model._module
    stem = next(path for path, inner in module.named_modules() if inner is run.model.layers._module).rpartition(".")[0]
    return [
        (path, inner)
        for path, inner in module.named_modules()
        if path.startswith(stem)
        and "position_ids" in inspect.signature(type(inner).forward).parameters
        and not any(True for _ in inner.parameters())
        and not any(True for _ in inner.children())
    ]


def turned(run: Run, module: torch.nn.Module, places: list[int], kind: str | None) -> tuple[torch.Tensor, ...] | None:
    """The tensors that a copy of such a module returns for these positions, the axis of positions first; None where it
    is called in another way.
    """
    try:
        module = copy.deepcopy(module)
    except TypeError:
        return None
    given = torch.zeros(1, len(places), 1, device=run.model.device)
    more = {} if kind is None else {"layer_type": kind}
    positions = torch.tensor([places], device=run.model.device)
    for ids in (positions, positions.expand(3, *positions.shape)):
        try:
            with torch.no_grad():
                made = module(given, ids, **more)
        except (RuntimeError, TypeError, IndexError, ValueError, AttributeError, KeyError):
            continue
        found = made if isinstance(made, tuple) else (made,)
        if all(isinstance(tensor, torch.Tensor) and len(places) in tensor.shape for tensor in found):
            return tuple(tensor.movedim(tensor.shape.index(len(places)), 0) for tensor in found)
    return None


def _calls(run: Run) -> Iterator[tuple[str, torch.nn.Module, str | None]]:
    for path, module in rotary_modules(run):
        if "layer_type" not in inspect.signature(type(module).forward).parameters:
            yield path, module, None
            continue
        named = entry(run, "rope_parameters") or {}
        for kind in dict.fromkeys([*layer_types(run), *(key for key, held in named.items() if isinstance(held, dict))]):
            yield path, module, kind


def length(made: tuple[torch.Tensor, ...]) -> float | None:
    """The root of cos² + sin², where that is one number; None where it is not, or where there are no such two."""
    if len(made) == 1 and made[0].is_complex():
        squares = made[0].abs().square()
    elif len(made) == 2 and made[0].shape == made[1].shape and not made[0].is_complex():
        squares = made[0].square() + made[1].square()
    else:
        return None
    mean = float(squares.mean())
    return mean**0.5 if float((squares - mean).abs().max()) < CLOSE * max(mean, 1.0) else None


def _lengths(run: Run) -> Iterator[Fact]:
    """How much longer turning makes queries and keys; a factor of one only where frequencies were changed."""
    found: dict[float, list[str]] = {}
    for path, module, kind in _calls(run):
        made = turned(run, module, list(range(8)), kind)
        factor = None if made is None else length(made)
        if factor is not None:
            name = f"`{path}`" + (f" for `{kind}`" if kind else "")
            found.setdefault(digits(factor), []).append(name)
    longer = {factor: names for factor, names in found.items() if abs(factor - 1) > 1e-4}
    if not longer and not (found and rescaled_rotary(run).verdict == "yes"):
        return
    said = [
        f"Turning with what {' and '.join(names)} gives makes queries and keys {factor:g} times as long each "
        f"(cos² + sin² is {digits(factor**2):g}), and their products {digits(factor**2):g} times as large: this is no "
        "part of the scores' scale."
        for factor, names in longer.items()
    ] or ["Turning leaves queries and keys as long as they are: cos² + sin² is one at every position."]
    yield Fact(
        name="rotary_length",
        label="Length of what turns",
        value=max(longer, default=1.0),
        measured={"factors": [*longer], "products": [digits(factor**2) for factor in longer]} if longer else {},
        statement=" ".join(said),
    )


def _switches(run: Run) -> Iterator[Fact]:
    """Whether the first positions turn otherwise in a call that reaches past a number of positions."""
    for path, module, kind in _calls(run):
        for name in REACHES:
            paths = [*rope_entries(run, 0, name), name]
            reach = next((value for each in paths if isinstance(value := entry(run, each), int)), None)
            if reach is None:
                continue
            short, up_to, past = (turned(run, module, [0, 1, last], kind) for last in (2, reach - 1, reach))
            if short is None or up_to is None or past is None:
                continue
            if _same(short, up_to) and not _same(short, past):
                yield Fact(
                    name="rotary_switch",
                    label="Positions past which frequencies change",
                    value=reach,
                    measured={"entry": name, "module": path},
                    statement=(
                        f"The frequencies depend on how far a call reaches: past `{name}` positions `{path}` turns all "
                        "of them otherwise, the first ones too, so keys in a cache from a shorter call do not match."
                    ),
                )
                return


def _same(one: tuple[torch.Tensor, ...], two: tuple[torch.Tensor, ...]) -> bool:
    """Whether the first two positions get the same numbers."""
    return all(torch.allclose(left[:2], right[:2], atol=1e-6) for left, right in zip(one, two, strict=True))
