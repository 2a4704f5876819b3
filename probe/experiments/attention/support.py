"""Who sees whom: the support of the attention pattern, on a prompt longer than any window that can be afforded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from ...instruments.extra import attentions, once
from ...instruments.tap import MASKED, Tap
from ...measure.images import prepared
from ...measure.run import Run
from ...standard.trace import Inputs
from ..answers import explain, phrase
from ..base import Measured, Quirk, Verdict, some
from .prompts import prompts
from .traced import attention_value, judged

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
    """The shape of every block's mask, over all its heads; None where its pattern was not read."""
    return [None if seen is None else classify(plain(seen.any(0))) for seen in prompts(run).visible]


def plain(seen: torch.Tensor) -> torch.Tensor:
    """The part of a mask over the keys that are positions: those after them are no tokens' own."""
    return seen[:, : seen.shape[0]]


def _cut(run: Run, kind: Kind, names: tuple[str, ...], number: str) -> Verdict:
    found = [None if support is None else support.kind == kind for support in supports(run)]
    sizes = sorted(
        {support.size for support in supports(run) if support and support.kind == kind and support.size is not None}
    )
    measured: Measured = {"positions": prompts(run).length}
    unseen = next((name for name in names if name in prompts(run).unseen), None)
    if sizes:
        measured[number] = sizes[0] if len(sizes) == 1 else sizes
    elif unseen is not None and any(support is not None for support in supports(run)):
        why = (
            f"The config's {unseen} is {prompts(run).unseen[unseen]}, and the longest prompt run has "
            f"{prompts(run).length} positions: within them nothing is cut off."
        )
        return Verdict("inconclusive", measured=measured, why=why)
    return judged(run, found, measured, explain(run, measured, {number: names}))


def sliding_window(run: Run) -> Verdict:
    """Which keys a query sees on a prompt longer than the window: a band of one width on every row, or all before
    it.
    """
    return _cut(run, "sliding", ("sliding_window", "window_size", "attention_window_size"), "window")


def chunked_attention(run: Run) -> Verdict:
    """The same: a chunk begins anew every so many positions, where a band would move along with the query."""
    return _cut(run, "chunked", ("attention_chunk_size",), "chunk")


def sparse_attention(run: Run) -> Verdict:
    """What a query may see on two prompts of different tokens: a support that moves with the tokens is chosen from
    the input.
    """
    found = [
        None if one is None or two is None else _moves(one, two)
        for one, two in zip(prompts(run).visible, prompts(run).other, strict=True)
    ]
    return judged(run, found, {"positions": prompts(run).length})


def _moves(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two masks differ where both have queries and keys."""
    queries, keys = (min(one.shape[axis], two.shape[axis]) for axis in (1, 2))
    return not torch.equal(one[:, :queries, :keys], two[:, :queries, :keys])


def _with_an_image(run: Run) -> tuple[Inputs, torch.Tensor, list[torch.Tensor | None]] | None:
    """The inputs of a prompt with an image, which of its tokens are the image's, and what each block's queries see.

    An encoder without standard names says nothing of its tokens: there the ids do, in a forward on a prompt of its own.
    """
    image = run.root("image_token_mask", "model.vision") if run.vision is not None else None
    if image is not None:
        read = [attention_value(run, index, "attention_scores") for index in range(len(run.text))]
        return run.inputs, image[0], [None if scores is None else _let_through(scores) for scores in read]
    given = prepared(run) if run.vision is None else None
    if given is None:
        return None
    inputs = given[2]
    return inputs, inputs["input_ids"][0] == run.model._module.config.image_token_id, _seen(run, inputs)


def _seen(run: Run, inputs: Inputs) -> list[torch.Tensor | None]:
    """What each block's queries see, ``[query, key]``, in a forward on these inputs."""
    tap = Tap(attentions(run), softmax=lambda scores, _: _let_through(scores))
    with torch.no_grad(), tap:
        run.model._module(**inputs)
    return [block.softmax for block in tap.blocks]


def _let_through(scores: torch.Tensor) -> torch.Tensor:
    return (scores[0] > MASKED).any(0)


def bidirectional_images(run: Run) -> Verdict:
    """Whether an image token sees a later one of its image, and no text token sees anything later, on a prompt with an
    image; and whether it still does without the token types.
    """
    given = _with_an_image(run)
    if given is None:
        return Verdict("n/a", why="No image reaches this checkpoint.")
    inputs, image, seen = given
    found = [None if visible is None else _ahead(visible, image) for visible in seen]
    measured: Measured = {"image_tokens": int(image.sum())}
    types = next((name for name in inputs if name.endswith("token_type_ids")), None)
    if any(found) and types is not None:
        without = _seen(run, {name: value for name, value in inputs.items() if name != types})
        if not any(visible is not None and _ahead(visible, image) for visible in without):
            measured["needs"] = types
    return judged(run, found, measured)


def _ahead(visible: torch.Tensor, image: torch.Tensor) -> bool:
    """Whether image tokens see later ones of theirs, and no other token sees anything later."""
    later = visible.triu(1)
    return bool(later[image][:, image].any()) and not bool(later[~image].any())


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
        f"On {some(blocks or [], total)} a query sees only itself and the positions before it in its chunk; {chunks} "
        "follow one another from position 0."
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
