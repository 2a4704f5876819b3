"""A drafted family module: what was derived, written as Python that a person can edit.

The draft works as it is. Hosts that serve what most families' do are taken as they are; the others are written as
classes that name only what differs.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ..registry import Family
from ..values import hosts
from ..values.readout import Readout
from .groups import Class, Group, Twin, groups, settled
from .literals import imported, mapping, quoted, sequence
from .writing import base_of, value, written

SAYS = r"scal|mult|cap|logit|base|temperature"
"""Names under which a config may say what is done to the head's input or output."""


def printed(known: Family, twins: Sequence[Twin], unkept: Collection[str] = ()) -> str:
    """The source of a family module.

    Args:
        known: what is known of the family before anything runs.
        twins: those that it is drafted from.
        unkept: names of the usual equations that one of them does not keep.
    """
    found = groups(twins)
    classes = {group.name: made for group in found if (made := written(group)) is not None}
    body = [
        *_rename(twins),
        *_root(twins),
        *_readout(twins),
        *(line for made in classes.values() for line in ("", "", *made)),
        *(["", ""] if classes else [""]),
        *_envoys(found, classes),
        *(_unkept(unkept) if unkept else []),
    ]
    return "\n".join([*_head(known, twins, found, body), *body]) + "\n"


def _head(known: Family, twins: Sequence[Twin], found: list[Group], body: list[str]) -> Iterator[str]:
    yield f'"""{known.title} (`model_type` `{known.name}`).'
    yield ""
    yield "TODO: what differs from other families, and where it is read. Drafted from a run of its twins."
    yield '"""'
    yield ""
    yield "from __future__ import annotations"
    yield ""
    yield "from typing import Any"
    yield ""
    natives: dict[str, set[str]] = {}
    for native in [*(group.native for group in found if group.key is None), *_keys(twins)]:
        package, _, module = native.__module__.rpartition(".")
        where, name = (package, module) if _clashes(native) else (native.__module__, native.__name__)
        natives.setdefault(where, set()).add(name)
    for module, names in sorted(natives.items()):
        yield from imported(module, names)
    yield ""
    text = "\n".join(body)
    ours = {
        "probe.values.hosts": {"Part", *(base_of(group).__name__ for group in found)},
        "probe.values.observed": {"ObservedValue"},
        "probe.values.readout": {"Readout"},
        "probe.values.value": {"StandardValue", "Unserved"},
    }
    for module, names in ours.items():
        if used := {name for name in names if re.search(rf"\b{name}\b", text)}:
            yield from imported(module, used)
    yield ""
    yield f"TITLE = {quoted(known.title)}"
    yield ""
    yield from sequence("CHECKPOINTS", known.checkpoints)
    yield ""
    yield "TWINS: dict[str, dict[str, Any]] = {}"
    yield '"""None of its own: those that are made for every decoder."""'
    yield ""


def _rename(twins: Sequence[Twin]) -> Iterator[str]:
    found: dict[str | type, str] = {}
    for twin in twins:
        for key, name in twin.family.RENAME.items():
            if found.setdefault(key, name) != name:
                yield f"# {twin.name}: {key} is {name}"
    for end, name in _misnamed(twins, found):
        yield f"# TODO: {end} gets the name {name} too, which the run did not give it."
    yield from mapping(
        "RENAME: dict[str | type, str | list[str]]",
        (f"{_spelled(key) if isinstance(key, type) else quoted(key)}: {quoted(name)}" for key, name in found.items()),
    )
    yield '"""Native paths and their standard names."""'


def _misnamed(twins: Sequence[Twin], names: Mapping[str | type, str]) -> Iterator[tuple[str, str]]:
    """Hosts that a name by class reaches beside those it was meant for: path from the block, and that name."""
    found = {
        (host.native, names[native]): None
        for twin in twins
        for block in twin.family.draft.blocks
        for host in block.hosts[1:]
        if (native := type(twin.model.get_submodule(host.path))) in names and names[native] != host.name
    }
    yield from found


def _root(twins: Sequence[Twin]) -> Iterator[str]:
    """The values of the whole model that are elsewhere than usual."""
    roots = [twin.family.draft.root for twin in twins]
    if not any(roots):
        return
    yield ""
    if not settled(roots):
        yield from _remarks(
            {
                twin.name: ", ".join(f"{n} at {d.at}" for n, d in root.items()) or "none of these"
                for twin, root in zip(twins, roots, strict=True)
            }
        )
    if not roots[0]:
        return
    yield "ROOT: dict[str, StandardValue] = {"
    for name, declared in roots[0].items():
        yield from value(f"{quoted(name)}: ", declared, ",")
    yield "}"
    yield '"""Values of the whole model that are elsewhere than usual."""'


def _readout(twins: Sequence[Twin]) -> Iterator[str]:
    """What stands from the last block to the logits, where that is not norm, head, and the softcap of the config."""
    paths = [_standard(twin, twin.family.READOUT.modules) for twin in twins]
    shown = {
        "leaving": _number([(twin, twin.family.READOUT.leaving) for twin in twins], 1.0),
        "entering": _number([(twin, twin.family.READOUT.entering) for twin in twins], 1.0),
        "scale": _number([(twin, twin.family.READOUT.scale) for twin in twins], 1.0),
        "cap": _number([(twin, twin.family.READOUT.cap) for twin in twins], None),
    }
    usual = Readout().modules
    softcap = "lambda config: config.final_logit_softcapping"
    if all(path == usual for path in paths) and not any(shown[key] for key in ("leaving", "entering", "scale")):
        if shown["cap"] in (None, softcap):
            return
    yield ""
    if not settled(paths):
        yield from _remarks({twin.name: ", ".join(path) for twin, path in zip(twins, paths, strict=True)})
    modules = f"({', '.join(map(quoted, paths[0]))}{',' if len(paths[0]) == 1 else ''})"
    arguments = [modules, *(f"{key}={said}" for key, said in shown.items() if said)]
    yield f"READOUT = Readout({', '.join(arguments)})"
    yield '"""From the last block to the logits."""'


def _standard(twin: Twin, paths: Sequence[str]) -> tuple[str, ...]:
    """Paths, those of the named parts as their standard names."""
    names = twin.family.draft.rename
    return tuple(names.get(path, path) for path in paths)


def _number(found: Sequence[tuple[Twin, Any]], usual: float | None) -> str | None:
    """A number of the readout as the config says it on every twin, or as it is; None where it is the usual one."""
    if all(number == usual for _, number in found):
        return None
    configs = [twin.model.config.get_text_config(decoder=True) for twin, _ in found]
    names = [name for name in configs[0].to_dict() if re.search(SAYS, name)]
    said = [f"config.{name}" for name in names] + [f"1 / config.{name}" for name in names]
    said += [f"config.{name} / config.hidden_size" for name in names]
    said += [f"config.hidden_size / config.{name}" for name in names]
    for expression in said:
        if all(_gives(expression, config, number) for config, (_, number) in zip(configs, found, strict=True)):
            return f"lambda config: {expression}"
    return repr(found[0][1])


def _gives(expression: str, config: Any, number: float | None) -> bool:
    try:
        made = eval(expression, {"config": config})  # of attributes of the config only, put together above
        return number is not None and math.isclose(made, number, rel_tol=1e-4)
    except (AttributeError, RuntimeError, TypeError, ZeroDivisionError):
        return False


def _remarks(said: dict[str, str]) -> Iterator[str]:
    """Comments on what differs between twins."""
    for name, what in said.items():
        yield from (f"# {line}" for line in textwrap.wrap(f"{name}: {what}", 110))


def _envoys(found: list[Group], classes: Collection[str]) -> Iterator[str]:
    entries = [
        f"{quoted(group.key) if group.key else _spelled(group.native)}: "
        f"{group.name if group.name in classes else base_of(group).__name__}"
        for group in found
    ]
    entries += [f"{quoted(end)}: Part" for group in found for end in group.unserved]
    keys = "type | str" if any(entry.startswith(("'", '"')) for entry in entries) else "type"
    yield from mapping(f"ENVOYS: dict[{keys}, type]", entries)
    where = "native class, or of the end of a path" if keys != "type" else "native class"
    yield f'"""Which host serves the values of each {where}."""'


def _unkept(names: Collection[str]) -> Iterator[str]:
    yield ""
    yield from sequence("UNKEPT", sorted(names))
    yield '"""Equations that most families keep and this one does not."""'


def _clashes(native: Class) -> bool:
    """Whether a native class has the name of a host."""
    return hasattr(hosts, native.__name__)


def _spelled(native: Class) -> str:
    """A native class's name in the module."""
    return f"{native.__module__.rpartition('.')[2]}.{native.__name__}" if _clashes(native) else native.__name__


def _keys(twins: Sequence[Twin]) -> list[Class]:
    return [key for twin in twins for key in twin.family.RENAME if isinstance(key, type)]
