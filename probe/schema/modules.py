"""What a module holds and returns: weights with their head axes, return types, the model's optional outputs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .part import Part


class Weight(Part):
    """One parameter whose rows or columns belong to heads, experts or parts of a fused projection."""

    path: str = Field(description="dotted path for `get_parameter`, with `{i}` for the block's index")
    name: str = Field(description="what it yields: `queries`, `keys`, `attention_output`, `routed_expert_outputs`, …")
    shape: list[int] = Field(description="on the first of its blocks")
    blocks: list[int]
    axis: int | None = Field(None, description="the axis that heads or experts lie on; null where none was found")
    count: int | None = Field(None, description="how many heads or experts lie on it")
    layout: str | None = Field(None, description="the axis in words, e.g. `heads × (q, k, v) × head_dim`")
    parts: dict[str, str] = Field(
        {},
        description="for each part, the slice of head or expert `h`, as Python on the parameter, e.g. `[h * 8:(h + 1) * 8]`",
    )
    statement: str = Field(description="one sentence: how the layout was found, with the error")


class Element(Part):
    """One position of what a module returns."""

    position: int | str | None = Field(description="index or key; null where the module returns one tensor")
    type: str = Field(description="`Tensor`, `NoneType`, `DynamicCache`, …")
    shape: list[int] | None = None
    value: str | None = Field(None, description="the standard value it equals, found by comparing; null if none")


class Returned(Part):
    """What a module of a block returns."""

    path: str = Field(description="dotted path, with `{i}` for the block's index")
    module: str = Field(description="native class")
    blocks: list[int]
    type: str = Field(description="`Tensor`, `tuple`, or the class of an output object")
    elements: list[Element]


class Output(Part):
    """What the model returns when a flag asks for more."""

    flag: str = Field(description="`output_attentions`, `output_hidden_states`, `output_router_logits`, `use_cache`")
    accepted: bool = Field(description="false where the forward refuses the flag")
    field: str | None = Field(None, description="the field that it fills")
    length: int | None = Field(None, description="entries of that field; null where it is None or absent")
    missing: list[int] = Field([], description="entries that are None")
    shapes: list[list[int]] = Field([], description="the distinct shapes of its entries")
    value: str | None = Field(None, description="the standard value its entries equal, found by comparing")
    load: Literal["default", "eager"] = Field("default", description="the attention implementation it was asked under")
    statement: str
