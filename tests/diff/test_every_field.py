"""Whatever is edited in a record is told: each field of each kind of row once, and the rows of the newest parts."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from probe import schema
from probe.diff.compare import compare
from probe.diff.report import difference
from probe.diff.sources import Source
from probe.errors import ProbeError

Record = dict[str, Any]
At = tuple[str | int, ...]

KERNELS = ("eager_sdpa", "left_padding")
"""Facts named so are of rounding: their wording is their number's."""


@pytest.fixture(scope="module")
def record(measured: str) -> Record:
    """The measured record, with rows of the parts that it may lack."""
    made: Record = json.loads(measured)
    made["pictures"] = [
        schema.Picture(
            name="mask", kind="mask", label="Mask", quirks=["x"], blocks=[0], axes=["key"],
            series=[schema.Series(name="a", numbers=[1.0, 2.5])], rows=["10", "11"], step=1, marked={"image": [0, 1]},
            ticks=["0", "1"], statement="A triangle.",
        ).model_dump()
    ]  # fmt: skip
    made["weights"] = [
        schema.Weight(
            path="layers.{i}.q", yields=["queries"], shape=[8, 4], blocks=[0, 1], axis=0, counts={"q": 2},
            layout="heads × head_dim", parts={"q": "[h * 4:(h + 1) * 4]"}, statement="Found by an edit of a head.",
        ).model_dump()
    ]  # fmt: skip
    made["returned"] = [
        schema.Returned(
            path="layers.{i}", module="Layer", blocks=[0], type="tuple",
            elements=[schema.Element(position=0, type="Tensor", shape=[1, 2], value="layer_output")],
        ).model_dump()
    ]  # fmt: skip
    made["outputs"] = [
        schema.Output(
            flag="output_attentions", accepted=True, field="attentions", length=2, missing=[1], shapes=[[1, 2]],
            type="tuple", equals=[schema.Entries(value="attention_probabilities", entries=[0], blocks=[3])],
            load="eager", statement="One a block.",
        ).model_dump()
    ]  # fmt: skip
    made["images"] = schema.Images(
        size="57 × 36", prompt="<image> What?", inputs={"pixel_values": [1, 3, 4, 4]}, token={"image_token_id": 4},
        mask_holds=True, image_tokens=4, first=1, last=4,
        stations=[
            schema.Station(
                path="visual.blocks.{i}", module="Block", side="out", element="output", shape=[4, 8], blocks=[0, 1],
                role="block", reaches=[0], edits=False, in_place=[0], logits=0.5, takes=[1], enters=[-1],
            )
        ],
        patterns=[schema.Pattern(blocks=[0], shape=[1, 2, 6, 6], both_ways=[0])], without_pattern=[1],
        shares=[0.25, None],
    ).model_dump()  # fmt: skip
    return made


def _leaves(node: Any, at: At = ()) -> Iterator[tuple[At, Any]]:
    if isinstance(node, dict | list) and node:
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _leaves(value, (*at, key))
    else:
        yield at, node


def _kinds(record: Record) -> dict[tuple[str, ...], tuple[At, Any]]:
    """The first leaf of each kind, which is its path with ``*`` for a place in a list; provenance aside."""
    found: dict[tuple[str, ...], tuple[At, Any]] = {}
    for at, value in _leaves(record):
        named = at[0] == "facts" and str(record["facts"][at[1]]["name"]).startswith(KERNELS)
        kind = tuple("*" if isinstance(step, int) else step for step in at)
        if at[0] != "provenance" and not named:
            found.setdefault(kind, (at, value))
    return found


def _another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value * 3 + 1
    if isinstance(value, dict | list):
        return {"more": "1"} if isinstance(value, dict) else ["more"]
    return "something else" if value is None else f"{value} and more"


def _edited(record: Record, at: At, value: Any) -> Record:
    made = copy.deepcopy(record)
    node: Any = made
    for step in at[:-1]:
        node = node[step]
    node[at[-1]] = value
    return made


def test_each_field_of_each_kind_of_row_is_compared(record: Record) -> None:
    kinds = _kinds(record)
    assert len(kinds) > 120 and {kind[0] for kind in kinds} >= {"values", "pictures", "weights", "returned", "outputs"}
    untold, refused = [], 0
    for kind, (at, value) in kinds.items():
        made = _edited(record, at, _another(value))
        try:
            told = compare(record, made)
        except (LookupError, TypeError, AttributeError):  # no record any more, which `check` and `diff` tell as such
            refused += 1
            continue
        if not told or any(change.before == change.after for change in told):
            untold.append(".".join(kind))
    assert untold == [] and refused < 20


@pytest.mark.parametrize("part", ["layer_types", "values", "weights", "outputs", "returned", "pictures", "facts"])
def test_a_row_that_is_gone_is_told(record: Record, part: str) -> None:
    [change] = compare(record, record | {part: record[part][:-1]})[:1]
    assert change.before is not None and (change.after is None or part == "layer_types")


def test_a_record_of_another_make_is_told_as_one(record: Record) -> None:
    sources = [
        Source(name, {("llama", "tiny"): name}, lambda wanted, data=data: {wanted[0]: json.dumps(data).encode()})
        for name, data in (("a", record), ("b", record | {"facts": [{"label": "nameless"}]}))
    ]
    with pytest.raises(ProbeError, match=r"One of the two records llama/tiny\.json does not say what a record says"):
        difference(*sources)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda record: "[" * 100_000, "is not JSON"),
        (lambda record: json.dumps(record | {"schema": 999}), "version 999 of the format, newer than this code"),
        (lambda record: json.dumps(record | {"family": "gpt2"}), "is of gpt2/tiny: move it there"),
        (lambda record: json.dumps([record]), "does not say what a record says"),
    ],
)
def test_a_text_that_is_no_record_of_its_place_is_refused(
    record: Record, spoil: Callable[[Record], str], sentence: str
) -> None:
    texts = {"a": json.dumps(record), "b": spoil(record)}
    sources = [
        Source(name, {("llama", "tiny"): name}, lambda wanted: {each: texts[each].encode() for each in wanted})
        for name in texts
    ]
    with pytest.raises(ProbeError, match=re.escape(sentence)):
        difference(*sources)
