"""Who sees whom: the support of the attention pattern, on a prompt longer than any window that can be afforded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from ..measure.checks import HIDDEN
from ..measure.run import Run
from .answers import explain, per_block, phrase
from .base import Measured, Quirk, Verdict, some
from .extra import LENGTH, attentions, once
from .forwards import masks
from .tap import Tap

Kind = Literal["full", "sliding", "chunked", "two-way", "other"]


@dataclass(frozen=True)
class Support:
    """The shape of a mask, and the size of its window or chunk where it has one."""

    kind: Kind
    size: int | None = None


def classify(visible: torch.Tensor) -> Support:
    """The shape of a mask ``[query, key]``, from what it lets through alone."""
    length = visible.shape[0]
    query, key = torch.arange(length, device=visible.device)[:, None], torch.arange(length, device=visible.device)[None]
    causal = key <= query
    if torch.equal(visible, causal):
        return Support("full")
    if bool((visible & ~causal).any()):
        return Support("two-way")
    cut = (~visible[:, 0]).nonzero()
    if len(cut) == 0:
        return Support("other")
    size = int(cut[0])
    if torch.equal(visible, causal & (query - key < size)):
        return Support("sliding", size)
    if torch.equal(visible, causal & (query // size == key // size)):
        return Support("chunked", size)
    return Support("other")


@once
def supports(run: Run) -> list[Support | None]:
    """The shape of every block's mask; None where no softmax over positions was seen."""
    return [None if visible is None else classify(visible) for visible in masks(run).visible]


def _cut(run: Run, kind: Kind, entry: str, number: str) -> Verdict:
    found = [None if support is None else support.kind == kind for support in supports(run)]
    sizes = sorted(
        {support.size for support in supports(run) if support and support.kind == kind and support.size is not None}
    )
    measured: Measured = {"positions": masks(run).length}
    if sizes:
        measured[number] = sizes[0] if len(sizes) == 1 else sizes
    elif entry in masks(run).unseen:
        why = (
            f"The config's {entry} is {masks(run).unseen[entry]}, and the longest prompt run has {masks(run).length} "
            "positions: within them nothing is cut off."
        )
        return Verdict("inconclusive", measured=measured, why=why)
    return per_block(
        found, measured, explain(run, measured, {number: [entry]}), absent="No softmax over positions was seen."
    )


def sliding_window(run: Run) -> Verdict:
    """Which keys a query sees on a prompt longer than the window: a band of one width on every row, or all before
    it.
    """
    return _cut(run, "sliding", "sliding_window", "window")


def chunked_attention(run: Run) -> Verdict:
    """The same: a chunk begins anew every so many positions, where a band would move along with the query."""
    return _cut(run, "chunked", "attention_chunk_size", "chunk")


def sparse_attention(run: Run) -> Verdict:
    """What a query may see on two prompts of different tokens: a support that moves with the tokens is chosen from
    the input.
    """
    both = zip(masks(run).visible, masks(run).other, strict=True)
    found = [None if one is None or two is None else not torch.equal(one[:LENGTH, :LENGTH], two) for one, two in both]
    return per_block(found, {"positions": LENGTH}, absent="No softmax over positions was seen.")


def bidirectional_images(run: Run) -> Verdict:
    """Whether an image token sees a later one of its image, on a prompt with an image; and whether it still does
    without the token types.
    """
    image = run.root("image_token_mask", "model.vision") if run.vision is not None else None
    if image is None:
        return Verdict("n/a", why="No image reaches this checkpoint.")
    places = image[0].nonzero().flatten()
    read = [run.text.get(index, "self_attn", "attention_scores") for index in range(len(run.text))]
    found = [None if scores is None else _later((scores[0] > -HIDDEN).any(0), places) for scores in read]
    measured: Measured = {"image_tokens": len(places)}
    types = next((name for name in run.inputs if name.endswith("token_type_ids")), None)
    if any(found) and types is not None:
        tap = Tap(attentions(run), softmax=lambda scores, _: (scores[0] > -HIDDEN).any(0))
        with torch.no_grad(), tap:
            run.model._module(**{name: value for name, value in run.inputs.items() if name != types})
        if not any(block.softmax is not None and _later(block.softmax, places) for block in tap.blocks):
            measured["needs"] = types
    return per_block(found, measured, absent="The scores were not read.")


def _later(visible: torch.Tensor, places: torch.Tensor) -> bool:
    """Whether any of the places sees a later one."""
    among = visible[places][:, places]
    return bool(among.triu(1).any())


def _window(measured: Measured, blocks: list[int] | None, total: int) -> str:
    size = measured.get("window")
    reach = (
        f"itself and the {size - 1} positions before it"
        if isinstance(size, int)
        else "itself and a fixed number of positions before it"
    )
    return f"A query on {some(blocks or [], total)} sees {reach}."


def _chunk(measured: Measured, blocks: list[int] | None, total: int) -> str:
    size = measured.get("chunk")
    chunks = f"chunks of {size} positions" if isinstance(size, int) else "fixed chunks"
    return (
        f"On {some(blocks or [], total)} a query sees only the positions before it in its own chunk; {chunks} follow "
        "one another from position 0."
    )


QUIRKS = (
    Quirk("sliding-window", "Sliding window", "text", sliding_window, _window),
    Quirk("chunked-attention", "Chunked attention", "text", chunked_attention, _chunk),
    Quirk(
        "sparse-attention",
        "Sparse attention",
        "text",
        sparse_attention,
        lambda m, b, n: (
            f"On {some(b or [], n)} which keys a query may see depends on the tokens, not on their distance alone."
        ),
    ),
    Quirk(
        "bidirectional-images",
        "Images seen both ways",
        "text",
        bidirectional_images,
        lambda m, b, n: (
            f"On {some(b or [], n)} the tokens of an image see each other in both directions; text stays causal"
            f"{phrase(m, 'needs', ', and without `{}` among the inputs the images do too')}."
        ),
    ),
)
