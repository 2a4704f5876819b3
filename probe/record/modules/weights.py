"""The weights of the attentions: the axis that heads lie on, in what order, and how to take one head of a parameter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...experiments.answers import NO_INTERFACE
from ...experiments.base import in_words
from ...instruments.extra import attentions
from ...instruments.projected import linear_paths
from ...measure.native import in_block
from ...measure.run import Run
from ...schema import Weight
from .layout import SHORT, Layout, layout, within
from .reach import Reached, reached


@dataclass(frozen=True)
class Held:
    """One parameter of one block, and the layout of its heads where one was found."""

    block: int
    path: str
    shape: tuple[int, ...]
    yields: tuple[str, ...] = ()
    axis: int | None = None
    layout: Layout | None = None
    parts: tuple[tuple[str, str], ...] = ()
    why: str = ""
    single: bool = False
    """Whether all of it belongs to the only head."""

    def counts(self) -> dict[str, int]:
        """How many heads of each kind have a part of their own."""
        if self.layout is None:
            return dict.fromkeys(self.yields, 1) if self.single else {}
        return {name: self.layout.count(name) for name in self.yields}

    def row(self) -> Weight:
        """The parameter as the record holds it, on its one block."""
        return Weight(
            path=self.path,
            yields=list(self.yields),
            shape=list(self.shape),
            blocks=[self.block],
            axis=self.axis,
            counts=self.counts(),
            layout=self.layout.words() if self.layout else None,
            parts=dict(self.parts),
            statement=self.why,
        )


def weights(run: Run) -> list[Held]:
    """Every matrix of every attention, block after block."""
    paths = {id(module): path for path, module in run.model._module.named_modules()}
    try:
        found = reached(run)
        unknown = NO_INTERFACE
    except RuntimeError as error:
        found, unknown = {}, f"No gradient runs through the model: {in_words(error)}."
    held: list[Held] = []
    for index, attention in enumerate(attentions(run)):
        if attention is None:
            continue
        above = in_block(paths[id(attention._module)], paths[id(run.text.envoys[index]._module)])
        parameters = dict(attention._module.named_parameters())
        if index in found:
            for path, reach in found[index].items():
                if reach:
                    held.append(_held(index, f"{above}.{path}", tuple(parameters[path].shape), reach))
            continue
        for path in linear_paths(attention):
            for name, parameter in attention._module.get_submodule(path).named_parameters(recurse=False):
                if parameter.ndim == 2:
                    full = ".".join(filter(None, (above, path, name)))
                    held.append(Held(index, full, tuple(parameter.shape), why=f"Its heads are unknown. {unknown}"))
    return held


def rows(held: Sequence[Held]) -> list[Weight]:
    """One row for the blocks on which a parameter is the same."""
    found: dict[str, Weight] = {}
    for each in held:
        row = each.row()
        key = row.model_dump_json(exclude={"blocks"})
        before = found.get(key)
        found[key] = row if before is None else before.model_copy(update={"blocks": [*before.blocks, each.block]})
    return list(found.values())


def _held(block: int, path: str, shape: tuple[int, ...], reach: Reached) -> Held:
    yields = tuple(reach)
    if (axis := _axis(reach)) is not None:
        places = {name: _distinct([_on(axis, mask) for mask in heads]) for name, heads in reach.items()}
        found = layout(places, shape[axis])
        if found is not None:
            parts = tuple((name, found.subscript(name, axis)) for name in yields)
            said = f"The gradient of each head's {_words(yields)} on it is zero outside that head's part."
            return Held(block, path, shape, yields, axis, found, parts, said)
        said = f"Each head's {_words(yields)} depend on a part of axis {axis} of their own, but no slice gives them."
        return Held(block, path, shape, yields, axis, why=said)
    if all(len(heads) == 1 for heads in reach.values()) and len(reach) == 1:
        (name,) = yields
        said = f"There is one head of {SHORT.get(name, name)}, and all of it is that head's."
        return Held(block, path, shape, yields, parts=((name, "[:]"),), why=said, single=True)
    shared = {name: _common(heads) for name, heads in reach.items()}
    parts = tuple((name, part) for name, part in shared.items() if part is not None)
    said = f"The {_words(yields)} of every head depend on it, all on the same part."
    if len(parts) < len(shared):
        return Held(
            block, path, shape, yields, why=f"The {_words(yields)} of several heads depend on the same entries."
        )
    return Held(block, path, shape, yields, parts=parts, why=said)


def _words(names: Sequence[str]) -> str:
    said = [SHORT.get(name, name) for name in names]
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"


def _on(axis: int, mask: torch.Tensor) -> tuple[int, ...]:
    """The places on an axis that hold an entry of the mask."""
    others = [place for place in range(mask.ndim) if place != axis]
    return tuple(mask.any(others).nonzero().flatten().tolist() if others else mask.nonzero().flatten().tolist())


def _distinct(heads: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Each set of places once: heads that share one are one."""
    return list(dict.fromkeys(heads))


def _axis(reach: Reached) -> int | None:
    """The axis on which different heads have different places, every kind on the same one."""
    dims = next(iter(reach.values()))[0].ndim
    fits = [axis for axis in range(dims) if _parts_heads(reach, axis)]
    return fits[0] if len(fits) == 1 else None


def _parts_heads(reach: Reached, axis: int) -> bool:
    """Whether no place of an axis belongs to two heads, of one kind or of two, and there are several parts."""
    sets = [places for heads in reach.values() for places in _distinct([_on(axis, mask) for mask in heads])]
    total = sum(map(len, sets))
    return len(sets) > 1 and total == len(set().union(*sets))


def _common(heads: Sequence[torch.Tensor]) -> str | None:
    """The part that all heads depend on, as a subscript; None where it is not one slice, or not the same."""
    if any(not torch.equal(heads[0], other) for other in heads[1:]):
        return None
    slices = []
    for axis in range(heads[0].ndim):
        part = within(_on(axis, heads[0]))
        if part is None:
            return None
        slices.append(":" if part == f"0:{heads[0].shape[axis]}" else part)
    while len(slices) > 1 and slices[-1] == ":":
        slices.pop()
    return f"[{', '.join(slices)}]"
