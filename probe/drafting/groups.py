"""Which derived hosts one class of a drafted module can serve, and where they differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..derive.declare import HostDraft
from ..derive.family import DefaultFamily

Class = type[torch.nn.Module]


@dataclass(frozen=True)
class Twin:
    """A twin that runs, with its default family."""

    name: str
    model: torch.nn.Module
    family: DefaultFamily


@dataclass(frozen=True)
class Place:
    """One host of one block of one twin.

    Attributes:
        inside: its path from the block, empty for the block.
        where: the twin and the block, in words.
    """

    native: Class
    inside: str
    where: str
    model: torch.nn.Module
    host: HostDraft


@dataclass
class Group:
    """Hosts that one class serves.

    Attributes:
        native: their modules' class.
        key: end of their path, where the class alone does not tell them from others; None where it does.
        places: all of them, the one that the class is written from first.
        remarks: what is elsewhere on one of them.
    """

    native: Class
    key: str | None
    places: list[Place]
    remarks: list[str] = field(default_factory=list)
    unserved: list[str] = field(default_factory=list)
    """Ends of the paths of modules of that class that are no hosts."""

    @property
    def host(self) -> HostDraft:
        return self.places[0].host

    @property
    def name(self) -> str:
        words = "".join(word.capitalize() for word in (self.key or "").replace(".", "_").split("_"))
        return f"{self.native.__name__}{words}Host"


def groups(twins: Sequence[Twin]) -> list[Group]:
    """The hosts of all twins, by native class, and by path where a class serves several things."""
    by_class: dict[Class, list[Place]] = {}
    for place in _places(twins):
        by_class.setdefault(place.native, []).append(place)
    return [group for native, places in by_class.items() for group in _of_class(native, places, twins)]


def _places(twins: Sequence[Twin]) -> Iterator[Place]:
    for twin in twins:
        for block in twin.family.draft.blocks:
            for host in block.hosts:
                inside = host.path.removeprefix(block.path).lstrip(".")
                native = type(twin.model.get_submodule(host.path))
                yield Place(native, inside, f"{twin.name}, block {block.index}", twin.model, host)


def _of_class(native: Class, places: list[Place], twins: Sequence[Twin]) -> Iterator[Group]:
    by_path: dict[str, list[Place]] = {}
    for place in places:
        by_path.setdefault(place.inside, []).append(place)
    plain = min(by_path, key=lambda path: path.count("."))
    others = _others(native, places, twins)
    own = bool(others) and bool(plain) and _unmistakable(plain, native, twins)
    first = Group(native, plain if own else None, by_path.pop(plain))
    if not own:
        first.unserved = [path for path in others if path and _unmistakable(path, native, twins)]
    found = [first]
    for path, here in by_path.items():
        if _unmistakable(path, native, twins) and (own or not same(here[0].host, first.host)):
            found.append(Group(native, path, here))
        else:
            first.places += here
    for group in found:
        for place in group.places:
            group.remarks += [f"{place.where}: {line}" for line in _differing(group.host, place.host)]
        yield group


def _others(native: Class, places: Sequence[Place], twins: Sequence[Twin]) -> list[str]:
    """Paths, from their block, of the modules of that class that are no hosts."""
    hosts = {(id(place.model), place.host.path) for place in places}
    found = [
        path.removeprefix(f"{twin.family.draft.container}.").partition(".")[2]
        for twin in twins
        for path, module in twin.model.named_modules()
        if type(module) is native
        and path.startswith(f"{twin.family.draft.container}.")
        and (id(twin.model), path) not in hosts
    ]
    return list(dict.fromkeys(found))


def _unmistakable(end: str, native: Class, twins: Sequence[Twin]) -> bool:
    """Whether every module whose path ends so is of that class."""
    return all(
        type(module) is native
        for twin in twins
        for path, module in twin.model.named_modules()
        if path.endswith(f".{end}")
    )


def same(first: HostDraft, other: HostDraft) -> bool:
    """Whether two hosts serve the same values at the same places."""
    return first.role == other.role and first.values == other.values


def _differing(first: HostDraft, other: HostDraft) -> Iterator[str]:
    """The values that another host has elsewhere, or only one of the two has."""
    if first.role != other.role:
        yield f"its role is {other.role}"
    for name, declared in other.values.items():
        if declared != first.values.get(name):
            yield f"{name} at {declared.at}" + (f", held {declared.axes}" if declared.axes else "")
    for name in first.values:
        if name not in other.values:
            yield f"no {name}"


def settled(values: Sequence[Any]) -> bool:
    """Whether all twins say the same."""
    return all(value == values[0] for value in values)
