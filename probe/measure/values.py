"""The value rows of a record: every declared value on every host, with what a run showed of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from ..schema import Edit, HfPath, Value
from ..standard import StandardizedTransformer
from ..standard.hosts import Host
from ..standard.value import StandardValue, Unserved
from .edits import Effect
from .rounding import one_digit
from .trace import Key, Readings, declared

NOT_EDITED = "derived from the run and read-only"


@dataclass
class Measured:
    """What the runs of one checkpoint gave for its values; empty for a build from a config.

    ``default`` holds the values the default attention implementation gave, ``reasons`` what it said of the others.
    """

    readings: Readings = field(default_factory=dict)
    default: frozenset[Key] = frozenset()
    reasons: Mapping[Key, str] = field(default_factory=dict)
    effects: Mapping[Key, Effect] = field(default_factory=dict)


@dataclass
class _Group:
    """One row in the making: a value on hosts of one native class."""

    value: StandardValue
    host: Host
    have: list[Key] = field(default_factory=list)
    lack: dict[int | None, str] = field(default_factory=dict)


def rows(model: StandardizedTransformer, measured: Measured | None, why: str | None = None, *, vision: bool) -> list[Value]:
    """One row a host, native class and value, in the order of a forward pass.

    Args:
        model: the standardized model.
        measured: what was run; None where nothing was.
        why: the reason of every null, where nothing was run.
        vision: rows of the tower, or of everything else.
    """
    groups: dict[tuple[str, str, str], _Group] = {}
    for key, host, value in declared(model):
        if key.host.startswith("model.vision") != vision:
            continue
        group = groups.setdefault((key.host, type(host._module).__name__, key.name), _Group(value, host))
        reason = host.refusal(value)
        if reason is None:
            if not group.have:
                group.host = host
            group.have.append(key)
        else:
            group.lack[key.block] = reason
    return [_row(model, key, group, measured, why) for key, group in groups.items()]


def _row(model: StandardizedTransformer, key: tuple[str, str, str], group: _Group, measured: Measured | None, why: str | None) -> Value:
    host, module, name = key
    value, have = group.value, group.have
    served = bool(have)
    needs, reason = _condition(group, measured)
    shape, reads, edits, edit = _seen(group, measured)
    return Value(
        host=host,
        module=module,
        name=name,
        layout=value.layout.name,
        dims=list(value.layout.dims),
        description=value.description or "",
        location=None if isinstance(value, Unserved) else str(value.location),
        read_at=value.words,
        hf=_plain(model, group) if served else None,
        blocks=_blocks(group),
        needs=needs,
        reason=reason,
        shape=shape,
        reads=reads,
        edits=edits,
        edit=edit,
        why=_why(group, measured, why),
    )


def _plain(model: StandardizedTransformer, group: _Group) -> HfPath:
    path, side, element = group.value.location.plain(group.host, model)
    block = group.have[0].block
    parts = [("{i}" if part == str(block) and block is not None else part) for part in path.split(".")]
    return HfPath(path=".".join(parts), side=side, element=element)


def _blocks(group: _Group) -> list[int] | None:
    if group.have and group.have[0].block is None or (not group.have and None in group.lack):
        return None
    return sorted(key.block for key in group.have if key.block is not None)


def _condition(group: _Group, measured: Measured | None) -> tuple[str | None, str | None]:
    """The load a value needs, and the sentence a refusal gives where some block or load has none."""
    if measured is not None:
        refused = [key for key in group.have if key not in measured.default]
        if refused:
            return "eager", measured.reasons[refused[0]]
    else:
        reasons = [reason for key in group.have if (reason := _under_default(group, key)) is not None]
        if reasons:
            return "eager", reasons[0]
    return None, next(iter(group.lack.values()), None)


def _under_default(group: _Group, key: Key) -> str | None:
    """What a load under the default implementation would say, found without running it."""
    module = group.host._module
    config = getattr(module, "config", None)
    if config is None or getattr(config, "_attn_implementation", None) != "eager":
        return None
    from .default import default_attention, implementation

    with implementation(group.host.root._module, default_attention(group.host.root._module)):
        return group.value.refusal(group.host)


def _seen(group: _Group, measured: Measured | None) -> tuple[list[int] | None, bool | None, bool | None, Edit | None]:
    if not group.have:
        return None, False, False, None
    if measured is None:
        return None, None, None, None
    read = [key for key in group.have if key in measured.readings]
    first = measured.readings[read[0]] if read else None
    shape = list(first.shape) if isinstance(first, torch.Tensor) else [len(first)] if isinstance(first, list) else None
    effects = [measured.effects[key] for key in group.have if key in measured.effects]
    edits = bool(effects) and len(effects) == len(group.have) and all(effect.reaches for effect in effects)
    edit = None
    if effects:
        exact = [effect.exact for effect in effects if effect.exact is not None]
        edit = Edit(
            logits=one_digit(max(effect.logits for effect in effects)),
            exact=one_digit(max(exact)) if exact else None,
        )
    return shape, len(read) == len(group.have), edits, edit


def _why(group: _Group, measured: Measured | None, why: str | None) -> str | None:
    if not group.have:
        return None
    if measured is None:
        return why
    if not group.value.writable:
        return NOT_EDITED
    silent = [key.block for key in group.have if key in measured.effects and not measured.effects[key].reaches]
    if silent:
        return f"the edit changed no logit on {'blocks ' + str(silent) if silent != [None] else 'this checkpoint'}"
    return None
