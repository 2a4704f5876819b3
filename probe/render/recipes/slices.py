"""Snippets that take one head or one expert out of a model: its part of a weight is zero for one run.

They are written from the record's rows of weights, which say what part of a parameter makes which head's or expert's
values. Parameters are PyTorch's own in every form, so the forms differ in how the model runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from probe.render.places import is_served
from probe.render.recipes.names import TRACE
from probe.render.standing import Standing
from probe.render.text import some_blocks
from probe.schema import Record, Value, Weight

EXPERTS = "expert_outputs"
STANDINS = (EXPERTS, "routed_output", "mlp_output")
"""On a mixture without a value for what each expert gives, the first of these that it has."""

RUN = {
    "names": f"{TRACE}\n    logits = model.logits.save()",
    "nnsight": f'{TRACE}\n    logits = model.output["logits"].save()',
    "pytorch": "with torch.no_grad():\n    logits = model(**inputs).logits",
}


@dataclass(frozen=True)
class Slice:
    """One weight's snippet in every form.

    Attributes:
        what: ``head`` or ``expert``.
        weight: the record's row.
        part: the subscript that the snippet sets to zero, in ``h``.
        path: the parameter's, on the block that the snippet takes.
        where: the blocks with such a weight in words, where a value's heads or experts are of several.
        code: by form.
    """

    what: str
    weight: Weight
    part: str
    path: str
    code: dict[str, str]
    where: str = ""


def slices(standing: Standing, value: Value) -> list[Slice]:
    """One for each weight whose parts make the heads or experts of a value; none where the record knows none."""
    if not is_served(value) or value.blocks is None:
        return []
    found = [_slice(weight, name, block) for weight, name, block in _rows(standing.record, value)]
    apart = len({each.weight.path for each in found}) < len(found)
    total = len(standing.record.blocks)
    return [replace(each, where=f" on {some_blocks(each.weight.blocks, total)}") if apart else each for each in found]


def _rows(record: Record, value: Value) -> Iterator[tuple[Weight, str, int]]:
    """The weights, what their parts make, and the first block that has both weight and value."""
    for weight in record.weights:
        shared = [block for block in value.blocks or [] if block in weight.blocks]
        for name in weight.yields:
            if shared and weight.layout and name in weight.parts and _shows(record, value, name, shared[0]):
                yield weight, name, shared[0]


def _shows(record: Record, value: Value, name: str, block: int) -> bool:
    """Whether it is this value's card that shows what makes ``name``."""
    if name != EXPERTS:
        return value.name == name and value.host.startswith("model.layers[i].") and not _linear(value)
    beside = {v.name for v in record.values if v.host == value.host and is_served(v) and block in (v.blocks or [])}
    return "expert_indices" in beside and value.name == next((n for n in STANDINS if n in beside), None)


def _linear(value: Value) -> bool:
    """Whether a mixer keeps a state, so that no row of weights is of its heads."""
    return value.host.rpartition(".")[2] == "linear_attn"


def _slice(weight: Weight, name: str, block: int) -> Slice:
    what = "expert" if name == EXPERTS else "head"
    path, part = weight.path.replace("{i}", str(block)), weight.parts[name]
    code = {form: _code(form, path, part, f"{weight.counts[name]} {what}s") for form in RUN}
    return Slice(what, weight, part, path, code)


def _code(form: str, path: str, part: str, several: str) -> str:
    owner = "model" if form == "pytorch" else "model._module"
    return "\n".join(
        [
            f"h = 0  # of {several}",
            f'weight = {owner}.get_parameter("{path}").data',
            f"kept = weight{part}.clone()",
            f"weight{part} = 0",
            RUN[form],
            f"weight{part} = kept",
        ]
    )
