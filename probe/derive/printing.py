"""A drafted family module: what was derived, written as Python that a person can edit.

Hosts that serve what most families' do are taken as they are; the others are written as subclasses that name only what
differs.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ..registry import Family
from ..standard import hosts
from ..standard.value import StandardValue
from .declare import Declared, HostDraft
from .family import DefaultFamily
from .speakers import expression, speaker

BASES: dict[str, type[hosts.Host]] = {
    "layer": hosts.Layer,
    "attention": hosts.Attention,
    "mlp": hosts.Mlp,
    "moe": hosts.Mlp,
}
"""The host that most families use, by role."""

Class = type[torch.nn.Module]


def printed(known: Family, drafts: Iterable[tuple[str, torch.nn.Module, DefaultFamily]]) -> str:
    """The source of a family module.

    Args:
        known: what is known of the family before anything runs.
        drafts: its twins: name, model, and default family.
    """
    twins = list(drafts)
    found: dict[Class, HostDraft] = {}
    remarks: dict[Class, list[str]] = {}
    for name, model, family in twins:
        for block in family.draft.blocks:
            for host in block.hosts:
                native = type(model.get_submodule(host.path))
                if native not in found:
                    found[native] = host
                elif differing := _differing(found[native], host):
                    remarks.setdefault(native, []).extend(f"{name}, block {block.index}: {line}" for line in differing)
    models = {
        type(model.get_submodule(host.path)): (model, host)
        for _, model, family in reversed(twins)
        for block in family.draft.blocks
        for host in block.hosts
    }
    classes, bases, envoys = [], set(), []
    for native, host in found.items():
        base = BASES.get(host.role, hosts.Host)
        body = [*_values(host, base), *_sizes(host, base, *models[native])]
        notes = [f"    # {line}" for line in dict.fromkeys(remarks.get(native, []))]
        bases.add(base.__name__)
        if body or notes:
            name = _class_name(native)
            classes.append(
                "\n".join(
                    [
                        f"class {name}({base.__name__}):",
                        f'    """TODO: what {native.__name__} does unlike others."""',
                        "",
                        *notes,
                        *body,
                    ]
                )
            )
            envoys.append(f"    {native.__name__}: {name},")
        else:
            envoys.append(f"    {native.__name__}: {base.__name__},")
    rename = _rename(twins)
    imports = sorted({(native.__module__, native.__name__) for native in [*found, *_keys(twins)]})
    return "\n".join(_module(known, imports, bases, rename, classes, envoys)) + "\n"


def _module(
    known: Family,
    imports: list[tuple[str, str]],
    bases: set[str],
    rename: list[str],
    classes: list[str],
    envoys: list[str],
) -> Iterator[str]:
    yield f'"""{known.title} (`model_type` `{known.name}`).'
    yield ""
    yield "TODO: what differs from other families, and where it is read. Drafted from a run of its twins."
    yield '"""'
    yield ""
    yield "from __future__ import annotations"
    yield ""
    yield "from typing import Any"
    yield ""
    for module in dict.fromkeys(module for module, _ in imports):
        names = ", ".join(name for at, name in imports if at == module)
        yield f"from {module} import {names}"
    yield ""
    yield f"from probe.standard.hosts import {', '.join(sorted(bases))}"
    if classes:
        if any("ObservedValue(" in written for written in classes):
            yield "from probe.standard.observed import ObservedValue"
        yield "from probe.standard.value import StandardValue, Unserved"
    yield ""
    yield f"TITLE = {known.title!r}"
    yield ""
    yield "CHECKPOINTS: tuple[str, ...] = (" + ("" if known.checkpoints else ")")
    if known.checkpoints:
        yield from (f"    {checkpoint!r}," for checkpoint in known.checkpoints)
        yield ")"
    yield ""
    yield "TWINS: dict[str, dict[str, Any]] = {}"
    yield '"""None of its own: those that are made for every decoder."""'
    yield ""
    yield "RENAME: dict[str | type, str | list[str]] = {"
    yield from rename
    yield "}"
    yield '"""Native paths and their standard names."""'
    for written in classes:
        yield from ("", "", written)
    yield from ("", "") if classes else ("",)
    yield "ENVOYS: dict[type, type] = {"
    yield from envoys
    yield "}"
    yield '"""Which host serves the values of each native class."""'


def _rename(twins: list[tuple[str, torch.nn.Module, DefaultFamily]]) -> list[str]:
    found: dict[str | type, str] = {}
    for _, _, family in twins:
        found |= dict(family.RENAME)
    return [f"    {key.__name__ if isinstance(key, type) else repr(key)}: {name!r}," for key, name in found.items()]


def _keys(twins: list[tuple[str, torch.nn.Module, DefaultFamily]]) -> list[Class]:
    return [key for _, _, family in twins for key in family.RENAME if isinstance(key, type)]


def _class_name(native: Class) -> str:
    return f"{native.__name__}Host"


def _values(host: HostDraft, base: type[hosts.Host]) -> Iterator[str]:
    """The values that differ from the base's, and those of the base that this host does not have."""
    usual = base.standard_values()
    for name, declared in host.values.items():
        if name not in usual or not _same(declared, usual[name]):
            yield from textwrap.indent(_value(name, declared), "    ").split("\n")
    for name, value in usual.items():
        if name not in host.values:
            reason = f"The run showed no {name} here."
            yield from textwrap.indent(
                _value(name, Declared("", None, str(value.description), reason=reason)), "    "
            ).split("\n")


def _same(declared: Declared, usual: StandardValue) -> bool:
    return (
        declared.at == str(usual.location)
        and declared.layout == usual.layout.name
        and declared.axes == (str(usual.axes) if usual.axes else None)
        and dict(declared.options) == {key: True for key in ("copy", "live") if getattr(usual, key)}
    )


def _value(name: str, declared: Declared) -> str:
    if declared.at is None:
        return f"{name} = Unserved(\n    {declared.reason!r},\n    {declared.description!r},\n)"
    lines = [f"    {declared.layout!r},", f"    {declared.at!r},", f"    {declared.description!r},"]
    if declared.axes:
        lines.append(f"    axes={declared.axes!r},")
    lines += [f"    {key}={value!r}," for key, value in declared.options]
    return "\n".join([f"{name} = {type(declared.value()).__name__}(", *lines, ")"])


def _differing(first: HostDraft, other: HostDraft) -> list[str]:
    """The values that another host of the same class has elsewhere."""
    return [
        f"{name} at {declared.at}"
        for name, declared in other.values.items()
        if declared.at is not None and (name not in first.values or first.values[name].at != declared.at)
    ]


def _sizes(host: HostDraft, base: type[hosts.Host], model: torch.nn.Module, at: HostDraft) -> Iterator[str]:
    """The sizes as properties, each where the model itself says it."""
    del host
    said = speaker(model, at.path)
    for name, size in at.sizes.items():
        written = expression(name, size, said)
        if written is None or (hasattr(base, name) and _usual_size(base, name, model, at) == size):
            continue
        yield from ("", "    @property", f"    def {name}(self) -> int:", f"        return int({written})")
    if "num_heads" in at.sizes and base is hosts.Host:
        yield from ("", "    @property", "    def layout_heads(self) -> int:", "        return self.num_heads")


def _usual_size(base: type[hosts.Host], name: str, model: torch.nn.Module, at: HostDraft) -> Any:
    class Bare:
        _module = model.get_submodule(at.path)

    for key in ("head_dim", "qk_head_dim", "num_heads", "num_kv_heads", "intermediate_size"):
        if isinstance(getattr(base, key, None), property):
            setattr(Bare, key, getattr(base, key))
    try:
        return getattr(Bare(), name)
    except (AttributeError, TypeError, ZeroDivisionError):
        return None
