"""How an image enters a text model, module by module, as hooks of plain PyTorch see it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .part import Part


class Station(Part):
    """One side of a module that an image passes before the first block of the text model."""

    path: str = Field(description="dotted path for `get_submodule`, with `{i}` for the index where a list is meant")
    module: str = Field(description="native class")
    side: Literal["in", "out"]
    element: str = Field(
        description="the tensor in a hook's terms, as Python: `args[0]`, `kwargs['x']`, `output`, `output[0]`"
    )
    shape: list[int]
    blocks: list[int] | None = Field(None, description="the values of `{i}` that were read; null where there is none")
    role: Literal["patch embedding", "block"] | None = Field(
        None, description="takes the pixels; or one of the stack whose modules hand on one stream"
    )
    reaches: list[int] | None = Field(
        None, description="of `blocks`, those where an edit changed the logits; null where there is no `{i}`"
    )
    edits: bool = Field(description="whether an edit changed the logits, on all of `blocks`")
    in_place: list[int] = Field(
        [],
        description="of `reaches`, those where an edit has to change the tensor in place: a hook that returns another "
        "one comes after a hook of transformers that has kept the first; `[0]` where there is no `{i}`",
    )
    logits: float = Field(description="largest change of a logit under the edits, one significant digit")
    takes: list[int] | None = Field(
        None,
        description="of an input outside the encoder's blocks: the block whose output it is; aligned with `blocks`; "
        "null where it is no block's",
    )
    dropped: Literal["first", "last"] | None = Field(
        None, description="the row of the encoder's output that is missing where `takes` names a block: a class row"
    )
    enters: list[int] | None = Field(
        None,
        description="where the tensor is what the text stream gets at the image tokens: -1 for what enters the first "
        "block, else the text block after which it is added; aligned with `blocks`; null where it is neither",
    )


class Pattern(Part):
    """The attention patterns of text blocks over text and image positions."""

    blocks: list[int]
    shape: list[int] = Field(description="[batch, heads, query, key], image tokens expanded")
    both_ways: list[int] = Field(
        [], description="of `blocks`, those where an image token attends to a later image token"
    )


class Images(Part):
    """What one prompt with one image became."""

    size: str = Field(description="of the image: width × height in pixels")
    prompt: str = Field(description="the text that was run, with what stands for the image")
    inputs: dict[str, list[int]] = Field(description="shape of each tensor that the processor made")
    token: dict[str, int] = Field(description="the config's entry that names the image token, and its value")
    mask_holds: bool = Field(
        description="whether the positions that the pixels change on entering the first text block are those where "
        "`input_ids == config.image_token_id`"
    )
    image_tokens: int
    first: int = Field(description="position of the first image token")
    last: int
    stations: list[Station] = Field(description="in the order of the forward pass, the input before the output")
    patterns: list[Pattern] = Field([], description="of `attentions` under eager attention, those alike together")
    without_pattern: list[int] = Field([], description="text blocks that give no pattern")
    shares: list[float | None] = Field(
        [], description="for each text block, the last token's attention on the image tokens, the mean over heads"
    )
