"""What a module holds and returns: weights with their head axes, return types, the model's optional outputs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .part import Part


class Weight(Part):
    """One parameter of an attention or of stacked experts, and which part of it belongs to which head or expert."""

    path: str = Field(description="dotted path for `get_parameter`, with `{i}` for the block's index")
    yields: list[str] = Field(
        description="the standard values that parts of it make: `attention_queries`, `attention_keys`, "
        "`attention_values`, `gate`, `attention_output`, `expert_outputs`; empty where none was found"
    )
    shape: list[int] = Field(description="of the parameter, on the first of its blocks")
    blocks: list[int]
    axis: int | None = Field(None, description="the axis that heads or experts lie on; null where none was found")
    counts: dict[str, int] = Field(
        {}, description="for each of `yields`, how many heads or experts have a part of their own; `h` counts these"
    )
    layout: str | None = Field(None, description="the axis in words, e.g. `4 × (queries 8, keys 8, values 8)`")
    parts: dict[str, str] = Field(
        {},
        description="for each of `yields`, the subscript that takes head or expert `h` of the parameter, as Python: "
        "`[h * 8:h * 8 + 8]`",
    )
    statement: str = Field(description="one sentence: how the layout was found, or why there is none")


class Element(Part):
    """One position of what a module returns."""

    position: int | str | None = Field(description="index or key; null where the module returns one tensor")
    type: str = Field(description="`Tensor`, `NoneType`, `DynamicCache`, …")
    shape: list[int] | None = Field(
        None,
        description="in the run, on the first of the blocks; null for no tensor, and where calls of the module differ",
    )
    value: str | None = Field(
        None, description="the standard value it equals, host and name, found by comparing; null if none"
    )
    made: str | None = Field(
        None, description="where it equals none: what it is of the router's logits, e.g. `softmax(router_logits)`"
    )


class Returned(Part):
    """What a module returned when the model ran."""

    path: str = Field(
        description="dotted path, with `{i}` for the block's index, and `{j}` for the place in a list inside a block; "
        "empty for the whole model"
    )
    module: str = Field(description="native class")
    blocks: list[int] | None = Field(description="null for a module outside the blocks")
    vision: bool = Field(False, description="whether the blocks are those of the vision encoder")
    type: str = Field(description="`Tensor`, `tuple`, or the class of an output object")
    elements: list[Element]
    reads: str | None = Field(
        None,
        description="of a module that holds a matrix: path of the module whose return it was called with, or rows of "
        "that return; null where it is no module's",
    )
    rewritten: bool = Field(
        False,
        description="whether a later operation writes to what it returned in place, so that only a clone keeps it",
    )


class Entries(Part):
    """Entries of an output's field that equal a standard value, or are made of it."""

    value: str = Field(description="the standard value, host and name")
    made: str | None = Field(
        None,
        exclude_if=lambda made: made is None,
        description="where they do not equal it: what they are of it, e.g. `softmax(router_logits)`",
    )
    entries: list[int] = Field(description="their positions in the field")
    blocks: list[int] = Field([], description="the block of each; empty for a value of the whole model")


class Output(Part):
    """What the model returns when a flag asks for more."""

    flag: str = Field(description="`output_attentions`, `output_hidden_states`, `output_router_logits`, `use_cache`")
    accepted: bool = Field(description="false where the forward refuses the flag")
    field: str | None = Field(None, description="the field that it fills; null where it fills none")
    type: str | None = Field(None, description="class of what the field holds")
    length: int | None = Field(None, description="entries of that field; null where it holds one thing")
    missing: list[int] = Field([], description="entries that are None, or layers of a cache that hold nothing a token")
    shapes: list[list[int]] = Field([], description="the distinct shapes of its entries")
    equals: list[Entries] = Field([], description="the standard values its entries equal, found by comparing")
    load: Literal["default", "eager"] = Field("default", description="the attention implementation it was asked under")
    statement: str
