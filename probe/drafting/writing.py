"""A host of a drafted module, written as a class: the host that most families use, and what differs from it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from ..derive.declare import Declared
from ..derive.family import SIZES
from ..derive.speakers import Said, candidates, speaker
from ..values import hosts
from ..values.value import StandardValue
from .groups import Group, Place
from .literals import lines, quoted

BASES: dict[str, type[hosts.Host]] = {
    "layer": hosts.Layer,
    "attention": hosts.Attention,
    "mlp": hosts.Mlp,
    "moe": hosts.Mlp,
}
"""The host that most families use, by role."""


def base_of(group: Group) -> type[hosts.Host]:
    """The host that the class is derived from: the usual one of its role where it has all of that one's values."""
    base = BASES.get(group.host.role, hosts.Host)
    if not set(base.standard_values()) <= set(group.host.values):
        return hosts.Host
    if base is hosts.Attention:
        for place in group.places:
            sizes = [name for name in SIZES if _usual_size(base, name, place) is not None]
            if "num_heads" not in place.host.sizes or set(sizes) - set(place.host.sizes):
                return hosts.Host
    return base


def written(group: Group) -> list[str] | None:
    """The lines of a host's class; None where it is the usual host."""
    base = base_of(group)
    body = [*_role(group, base), *_values(group, base)]
    sizes = list(_sizes(group, base))
    notes = [f"    # {line}" for remark in dict.fromkeys(group.remarks) for line in textwrap.wrap(remark, 110)]
    if not (body or sizes or notes):
        return None
    head = [
        f"class {group.name}({base.__name__}):",
        f'    """TODO: what {group.native.__name__} does unlike others."""',
    ]
    parts = [head, [*notes, *body], *sizes]
    return [line for part in parts if part for line in (*part, "")][:-1]


def _role(group: Group, base: type[hosts.Host]) -> Iterator[str]:
    if group.host.role != base.role:
        yield f"    role = {quoted(group.host.role)}"
    if group.host.recurrence is not None:
        yield f"    recurrence = {quoted(group.host.recurrence)}"


def _values(group: Group, base: type[hosts.Host]) -> Iterator[str]:
    """The values that differ from the base's."""
    usual = base.standard_values()
    for name, declared in group.host.values.items():
        if name not in usual or not _same(declared, usual[name]):
            yield from value(f"{name} = ", declared)


def _same(declared: Declared, usual: StandardValue) -> bool:
    made = declared.value()
    axes = str(usual.axes) if usual.axes else None
    options = {key: True for key in ("copy", "live") if getattr(usual, key)}
    return (type(made), declared.at, declared.layout, declared.axes, dict(declared.options), declared.description) == (
        type(usual),
        str(usual.location),
        usual.layout.name,
        axes,
        options,
        usual.description,
    )


def value(head: str, declared: Declared, after: str = "") -> Iterator[str]:
    """A standard value's construction, behind ``NAME = `` or ``KEY: ``, one indent in."""
    yield f"    {head}{type(declared.value()).__name__}("
    if declared.at is None:
        yield from lines(str(declared.reason), 8)
        yield from lines(declared.description, 8)
    else:
        yield f"        {quoted(declared.layout)},"
        yield from lines(declared.at, 8)
        yield from lines(declared.description, 8)
        if declared.axes:
            yield f"        axes={quoted(declared.axes)},"
        yield from (f"        {key}={given!r}," for key, given in declared.options)
    yield f"    ){after}"


def _sizes(group: Group, base: type[hosts.Host]) -> Iterator[list[str]]:
    """The sizes as properties, each by what says it on every one of the hosts."""
    said = [speaker(place.model, place.host.path) for place in group.places]
    every = {name for place in group.places for name in place.host.sizes}
    for name in SIZES:
        has = hasattr(base, name)
        if has and all(_usual_size(base, name, place) == place.host.sizes.get(name) for place in group.places):
            continue
        if name in every:
            yield _property(name, *_expression(name, group.places, said))
        elif has:
            yield ["    @property", f"    def {name}(self) -> None:", "        return None"]
    if "num_heads" in every and base is hosts.Host:
        yield ["    @property", "    def layout_heads(self) -> int | None:", "        return self.num_heads"]


def _property(name: str, expression: str | None, others: list[str]) -> list[str]:
    head = ["    @property", f"    def {name}(self) -> {'int' if expression else 'int | None'}:"]
    if expression is None:
        todo = "TODO: neither the module nor the config says it under a name that fits."
        return [*head, f'        """{todo}"""', "        return None"]
    notes = [f"        # TODO: another one on {other}" for other in others]
    return [*head, *notes, f"        return int({expression})"]


def _expression(name: str, places: list[Place], said: list[Said]) -> tuple[str | None, list[str]]:
    """What gives the size of the first host that has it and of most others, and those of which it does not."""
    having = [(place, by) for place, by in zip(places, said, strict=True) if name in place.host.sizes]
    wrong = {
        str(candidate): [place.where for place, by in having if candidate.of(by) != place.host.sizes[name]]
        for candidate in candidates(name, having[0][0].host.sizes[name], having[0][1])
    }
    if not wrong:
        return None, []
    best = min(wrong, key=lambda candidate: len(wrong[candidate]))
    return best, wrong[best]


def _usual_size(base: type[hosts.Host], name: str, place: Place) -> Any:
    class Bare:
        _module = place.model.get_submodule(place.host.path)

    for key in SIZES:
        if isinstance(getattr(base, key, None), property):
            setattr(Bare, key, getattr(base, key))
    try:
        return getattr(Bare(), name)
    except (AttributeError, TypeError, ZeroDivisionError):
        return None
