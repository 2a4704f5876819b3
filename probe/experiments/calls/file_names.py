"""Weights that a checkpoint's files hold under other names, split or joined: transformers converts them at loading.

The conversion is run backwards, as `save_pretrained` does, and each tensor that comes out is found again in the
parameter that it is part of.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import torch
from transformers.core_model_loading import revert_weight_conversion

from ...measure.listing import listed
from ...measure.run import Run
from ...schema import Fact

LOOKED = 64
"""Numbers of a tensor, from its first to its last, that are looked for in parameters."""

MOST = 10**8
"""Most numbers that are searched; of larger models only weights that are renamed whole are told."""

NAMED = 3
"""Most pairs of names that the sentence has."""


def file_names(run: Run) -> list[Fact]:
    """The names that differ; nothing where none does."""
    module = run.model._module
    own = _once(module.state_dict())
    saved = revert_weight_conversion(module, dict(own))
    holders = _Holders({name: own[name] for name in own.keys() - saved.keys()})
    names: dict[str, dict[str, None]] = {}
    for name in own:
        names.setdefault(_general(name), {}).update({_general(name): None} if name in saved else {})
    for name in sorted(saved.keys() - own.keys()):
        for holder in holders.of(saved[name]):
            names[_general(holder)][_general(name)] = None
    pairs: dict[str, list[str]] = {}
    for name, theirs in names.items():
        if theirs and [*theirs] != [name]:
            mine, others = _shared(name, [*theirs], names)
            pairs[mine] = others
    if not pairs:
        return []
    said = [f"`{mine}` is stored as {listed([f'`{each}`' for each in theirs])}" for mine, theirs in pairs.items()]
    more = len(said) - NAMED
    if more > 1:
        said = [*said[:NAMED], f"{more} others are stored under other names"]
    return [
        Fact(
            name="file_names",
            label="Other names in files",
            value=len(pairs),
            unit="names",
            measured={"own": [*pairs], "in_files": [", ".join(theirs) for theirs in pairs.values()]},
            statement=f"In files that `save_pretrained` writes, {'; '.join(said)}. Loading converts them.",
        )
    ]


def _once(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Each tensor under its first name alone: files hold tied ones once."""
    found: dict[tuple[int, torch.Size], str] = {}
    for name, tensor in weights.items():
        found.setdefault((tensor.data_ptr(), tensor.shape), name)
    return {name: weights[name] for name in found.values()}


class _Holders:
    """Parameters by the numbers in them."""

    def __init__(self, left: Mapping[str, torch.Tensor]) -> None:
        self.whole = {(held.data_ptr(), held.shape): name for name, held in left.items()}
        self.names = [*left] if sum(held.numel() for held in left.values()) <= MOST else []
        flat = [left[name].detach().flatten().double().cpu() for name in self.names]
        numbers = torch.cat(flat) if flat else torch.empty(0, dtype=torch.float64)
        owners = torch.cat([torch.full_like(each, place) for place, each in enumerate(flat)]) if flat else numbers
        self.numbers, order = numbers.sort(stable=True)
        self.owners = owners[order]

    def of(self, tensor: torch.Tensor) -> list[str]:
        """The parameters that a tensor's numbers are from; none where some of them are in none."""
        if (name := self.whole.get((tensor.data_ptr(), tensor.shape))) is not None:
            return [name]
        flat = tensor.detach().flatten()
        few = flat[torch.linspace(0, max(len(flat) - 1, 0), LOOKED).long()].double().cpu() if len(flat) else flat
        if not len(self.numbers) or not len(few):
            return []
        first, past = (torch.searchsorted(self.numbers, few, side=side).tolist() for side in ("left", "right"))
        left = [set(self.owners[a:b].tolist()) for a, b in zip(first, past, strict=True)]
        found: list[str] = []
        while left and all(left):  # the fewest that have all, since single numbers may stand in several
            every = sorted(set().union(*left))
            owner = max(every, key=lambda each: sum(each in owners for owners in left))
            found.append(self.names[int(owner)])
            left = [owners for owners in left if owner not in owners]
        return [] if left else found


def _general(name: str) -> str:
    """A name with `{i}` for the first number in it and `{j}` for a second."""
    places = iter("ij")
    return re.sub(r"(?<=\.)\d+(?=\.|$)", lambda found: f"{{{next(places, found[0])}}}", name)


def _shared(name: str, theirs: list[str], names: Mapping[str, Collection[str]]) -> tuple[str, list[str]]:
    """A weight and its names in files, or the shortest path of modules all of whose weights are renamed as it is."""
    mine, other = name, theirs[0]
    if len(theirs) == 1:
        left, right = name.split("."), theirs[0].split(".")
        while len(left) > 1 and len(right) > 1 and left.pop() == right.pop():
            stem, file = ".".join(left), ".".join(right)
            below = [each for each in names if each.startswith(f"{stem}.")]
            if any([*names[each]] != [file + each.removeprefix(stem)] for each in below):
                break
            mine, other = stem, file
    return mine, [other, *theirs[1:]]
