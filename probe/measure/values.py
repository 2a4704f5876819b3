"""The value rows of a record: every declared value on every host, with what a run showed of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch

from ..checkpoints.implementation import default_attention, implementation
from ..schema import Edit, HfPath, Value
from ..standard import StandardizedTransformer
from ..standard.trace import Key, Readings, declared
from ..values.hosts import Host
from ..values.value import Refusal, StandardValue, Unserved
from .edits import Effect
from .held import held
from .rounding import one_digit

STREAM_WIDTH = "stream_width"
"""Width of what blocks pass on, where that is not the hidden size."""

NOT_EDITED = "derived from the run and read-only"


@dataclass
class Measured:
    """What the runs of one checkpoint gave for its values.

    Attributes:
        reasons: what a load under the default attention says of the values that only eager attention gives.
        readings: the values as read; None where nothing was run.
        effects: what editing each of them did.
        held: shape of the tensor at each value's place; None where that is no tensor.
        why: the reason of every null, where nothing was run.
    """

    reasons: Mapping[Key, str]
    readings: Readings | None = None
    effects: Mapping[Key, Effect] = field(default_factory=dict)
    held: Mapping[Key, tuple[int, ...] | None] = field(default_factory=dict)
    why: str | None = None


@dataclass
class _Group:
    """One row in the making: a value on hosts of one native class."""

    value: StandardValue
    host: Host
    have: list[Key] = field(default_factory=list)
    lack: dict[int | None, str] = field(default_factory=dict)


def refused_by_default(model: StandardizedTransformer) -> dict[Key, str]:
    """The values that eager attention gives and the default attention does not, with the sentence it refuses them with.

    Nothing is run.
    """
    given = [(key, host, value) for key, host, value in declared(model) if host.refusal(value) is None]
    with implementation(model._module, default_attention(model._module)):
        return {key: reason for key, host, value in given if (reason := host.refusal(value)) is not None}


def rows(model: StandardizedTransformer, measured: Measured, *, vision: bool) -> list[Value]:
    """One row a host, native class and value, in the order of a forward pass: the tower's, or all others."""
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
    return [_row(model, key, group, measured) for key, group in groups.items()]


def _row(model: StandardizedTransformer, key: tuple[str, str, str], group: _Group, measured: Measured) -> Value:
    host, module, name = key
    value, have = group.value, group.have
    served = bool(have)
    needs, reason = _condition(group, measured)
    refusal = reason if isinstance(reason, Refusal) else None
    shape, reads, edits, edit = _seen(group, measured)
    return Value(
        host=host,
        module=module,
        name=name,
        layout=value.layout.name,
        dims=_dims(value, shape, model.hidden_size),
        description=value.description or "",
        location=None if isinstance(value, Unserved) else str(value.location),
        read_at=value.words,
        hf=_plain(model, group, measured, shape) if served else None,
        blocks=_blocks(group),
        needs=needs,
        reason=reason,
        lack=refusal.lack if refusal else None,
        code=refusal.code if refusal else None,
        passes=value.passes,
        shape=shape,
        reads=reads,
        edits=edits,
        edit=edit,
        why=_why(group, measured),
    )


def _dims(value: StandardValue, shape: list[int] | None, hidden_size: int) -> list[str]:
    """The layout's axes; the last one of a stream that is not as wide as the hidden size has a name of its own."""
    dims = list(value.layout.dims)
    if shape is not None and len(shape) == len(dims) and dims[-1:] == ["hidden_size"] and shape[-1] != hidden_size:
        dims[-1] = STREAM_WIDTH
    return dims


def _plain(model: StandardizedTransformer, group: _Group, measured: Measured, shape: list[int] | None) -> HfPath:
    path, side, element = group.value.location.plain(group.host, model)
    parts = path.split(".")
    if (index := str(group.have[0].block)) in parts:
        parts[parts.index(index)] = "{i}"  # the first: what follows may be numbered too
    read = next((key for key in group.have if key in measured.held), None)
    seen = None if read is None else held(group.value, measured.held[read], shape)
    return HfPath(path=".".join(parts), side=side, element=element, held=seen)


def _blocks(group: _Group) -> list[int] | None:
    if group.have and group.have[0].block is None or (not group.have and None in group.lack):
        return None
    return sorted(key.block for key in group.have if key.block is not None)


def _condition(group: _Group, measured: Measured) -> tuple[Literal["eager"] | None, str | None]:
    """The load a value needs, and the sentence a refusal gives where some block or load has none."""
    refused = next((measured.reasons[key] for key in group.have if key in measured.reasons), None)
    if refused is not None:
        return "eager", refused
    return None, next(iter(group.lack.values()), group.value.condition)


def _seen(group: _Group, measured: Measured) -> tuple[list[int] | None, bool | None, bool | None, Edit | None]:
    if not group.have:
        return None, False, False, None
    if measured.readings is None:
        return None, None, None, None
    read = [key for key in group.have if key in measured.readings]
    first = measured.readings[read[0]] if read else None
    shape = list(first.shape) if isinstance(first, torch.Tensor) else [len(first)] if isinstance(first, list) else None
    effects = {key: measured.effects[key] for key in group.have if key in measured.effects}
    seen = {key.block: effect.logits for key, effect in effects.items() if effect.logits is not None}
    edits = bool(seen) and all(effect.reaches is not False for effect in effects.values())
    edit = None
    if seen:
        exact = [effect.exact for effect in effects.values() if effect.exact is not None]
        edit = Edit(
            logits=one_digit(max(seen.values())),
            exact=one_digit(max(exact)) if exact else None,
            blocks=None if len(seen) == len(group.have) else sorted(block for block in seen if block is not None),
        )
    return shape, len(read) == len(group.have), edits, edit


def _why(group: _Group, measured: Measured) -> str | None:
    if not group.have:
        return None
    if measured.readings is None:
        return measured.why
    if not group.value.writable:
        return NOT_EDITED
    silent = [key.block for key in group.have if key in measured.effects and measured.effects[key].reaches is False]
    if silent:
        return f"the edit changed no logit on {'blocks ' + str(silent) if silent != [None] else 'this checkpoint'}"
    return None
