"""What the model's output holds when a flag asks for more: attentions, hidden states, router logits, the cache.

Each flag is asked for alone under the default attention, then all of them together under eager. What a flag fills is
what the output holds beyond that of a plain call, and each entry is compared with the values that were read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch

from ...checkpoints.implementation import default_attention, implementation
from ...experiments.base import in_words
from ...experiments.calls.cache import contents
from ...measure.run import Run
from ...schema import Entries, Output
from .known import Known, name
from .returned import type_name

FLAGS = ("output_attentions", "output_hidden_states", "output_router_logits", "use_cache")
PLAIN = dict.fromkeys(FLAGS[3:], False)
Load = Literal["default", "eager"]
Filled = dict[str, Any]
"""Field of an output -> what it holds; without those that are None."""


def outputs(run: Run, known: Known, plain: Any) -> list[Output]:
    """A row for each flag and each field that it fills; those under eager where they differ.

    Args:
        plain: what the model returned without any of the flags.
    """
    base = _filled(plain)
    found: list[Output] = []
    with implementation(run.model._module, default_attention(run.model._module)):
        by_default = {flag: _asked(run, {flag: True}) for flag in FLAGS}
    for flag, answer in by_default.items():
        found += _rows(run, known, flag, answer, base, "default")
    if default_attention(run.model._module) == "eager":
        return found
    accepted = [flag for flag, answer in by_default.items() if not isinstance(answer, Exception)]
    together = _asked(run, dict.fromkeys(accepted, True))
    for flag in FLAGS:
        if flag not in accepted or isinstance(together, Exception):
            answer = _asked(run, {flag: True})
        else:
            answer = _of(flag, together, base, found)
        rows = list(_rows(run, known, flag, answer, base, "eager"))
        if [_facts(row) for row in rows] != [_facts(row) for row in found if row.flag == flag]:
            found += rows
    return sorted(found, key=lambda row: FLAGS.index(row.flag))


def _asked(run: Run, flags: Mapping[str, bool]) -> Filled | Exception:
    """The fields of the output of a forward with these flags, or what it raised."""
    try:
        with torch.no_grad():
            return _filled(run.model._module(**run.inputs, **{**PLAIN, **flags}))
    except Exception as error:  # whatever a class raises is its answer to the flag
        return error


def _filled(out: Any) -> Filled:
    return {str(key): held for key, held in out.items() if held is not None} if isinstance(out, Mapping) else {}


def _of(flag: str, together: Filled, base: Filled, found: list[Output]) -> Filled:
    """The part of an output asked for everything that belongs to one flag: fields that no other flag filled."""
    others = {row.field for row in found if row.flag != flag}
    mine = {row.field for row in found if row.flag == flag}
    stem = flag.removeprefix("output_")
    return {
        field: held
        for field, held in together.items()
        if field in base or field in mine or (field not in others and (not mine - {None} and field == stem))
    }


def _rows(run: Run, known: Known, flag: str, answer: Filled | Exception, base: Filled, load: Load) -> Iterator[Output]:
    if isinstance(answer, Exception):
        said = f"The forward refuses `{flag}=True`: {in_words(answer)}."
        yield Output(flag=flag, accepted=False, load=load, statement=said)
        return
    new = [field for field in answer if field not in base]
    always = flag.removeprefix("output_")
    if not new and always in base and always in answer:
        row = _row(run, known, flag, always, answer[always], load)
        yield row.model_copy(update={"statement": f"The output has `{always}` without being asked."})
    elif not new:
        yield Output(flag=flag, accepted=True, load=load, statement=f"`{flag}=True` fills no field of the output.")
    for field in new:
        yield _row(run, known, flag, field, answer[field], load)


def _row(run: Run, known: Known, flag: str, field: str, held: Any, load: Load) -> Output:
    entries = list(held) if isinstance(held, (tuple, list)) else None
    tensors = [(place, item) for place, item in enumerate(entries or [held]) if isinstance(item, torch.Tensor)]
    missing = [] if entries is None else [place for place, item in enumerate(entries) if item is None]
    shapes = _distinct(tensor for _, tensor in tensors)
    if entries is None and not tensors:
        stored = contents(held, len(run.text))
        missing = [place for place, layer in enumerate(stored) if not layer.size]
        shapes = list(dict.fromkeys(layer.keys for layer in stored if layer.keys))
    row = Output(
        flag=flag,
        accepted=True,
        field=field,
        type=type_name(held),
        length=len(entries) if entries is not None else len(getattr(held, "layers", ())) or None,
        missing=missing,
        shapes=[list(shape) for shape in shapes],
        equals=_equal(run, known, tensors) if entries is not None else [],
        load=load,
        statement="",
    )
    return row.model_copy(update={"statement": _said(row)})


def _distinct(tensors: Any) -> list[tuple[int, ...]]:
    return list(dict.fromkeys(tuple(tensor.shape) for tensor in tensors))


def _equal(run: Run, known: Known, tensors: list[tuple[int, torch.Tensor]]) -> list[Entries]:
    """The values that entries equal: of several that do, the one that explains the most entries."""
    fits: dict[tuple[str, str | None], dict[int, int | None]] = {}
    for place, tensor in tensors:
        for block in (None, *range(len(run.text))):
            for key in known.all(tensor, block):
                fits.setdefault((name(key), None), {}).setdefault(place, block)
            if block is not None and (made := known.of_logits(tensor, block)) is not None:
                fits.setdefault((name(made[0]), made[1]), {}).setdefault(place, block)
    left = {place for place, _ in tensors}
    found = []
    while fits and left:
        best = max(fits, key=lambda value: len(left & fits[value].keys()))
        blocks = {place: block for place, block in sorted(fits.pop(best).items()) if place in left}
        if not blocks:
            break
        within = [block for block in blocks.values() if block is not None]
        found.append(Entries(value=best[0], made=best[1], entries=list(blocks), blocks=within))
        left -= blocks.keys()
    return sorted(found, key=lambda part: part.entries)


def _said(row: Output) -> str:
    if row.length is None:
        return f"`{row.flag}=True` fills `{row.field}` with one {row.type}."
    empty = "hold nothing" if row.type in ("tuple", "list") else "hold no keys and values"
    gaps = f", of which {len(row.missing)} {empty}" if row.missing else ""
    return f"`{row.flag}=True` fills `{row.field}` with {row.length} entries{gaps}."


def _facts(row: Output) -> dict[str, Any]:
    return row.model_dump(exclude={"load", "statement"})
