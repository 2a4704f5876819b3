"""Which keys a query reaches: the support of the attention pattern, a picture for each kind of mask."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from ...instruments.tap import MASKED
from ...measure.run import Run
from ...schema import Picture
from ..attention.prompts import prompts
from ..attention.support import Support, classify, plain
from ..attention.traced import attention_value
from ..base import some

SHOWN = 24
"""Most rows and columns of a mask."""

MOST = 4
"""Most masks of one model that are shown."""

CUT = ["sliding-window", "chunked-attention"]
SPARSE = "sparse-attention"
IMAGES = "bidirectional-images"
AXES = ["key position", "query position"]


@dataclass
class Group:
    """Blocks of one kind of mask. ``visible``, ``[query, key]``, is that of the first."""

    support: Support
    visible: torch.Tensor
    blocks: list[int] = field(default_factory=list)


def pictures(run: Run) -> list[Picture]:
    """The masks on the prompt that the experiments on windows use."""
    every = [None if seen is None else plain(seen.any(0)) for seen in prompts(run).visible]
    found: list[Picture] = []
    for group in grouped(run, every):
        label = named(group.support, "depends on the tokens")
        quirks = [*CUT, SPARSE] if group.support.kind == "other" else CUT
        found.append(picture(f"mask-{len(found)}", label, group, len(run.text), quirks))
    return found


def with_an_image(run: Run) -> list[Picture]:
    """The masks on a prompt with an image, where an image's token reaches a later one."""
    image = run.root("image_token_mask", "model.vision") if run.vision is not None else None
    if image is None:
        return []
    scores = [attention_value(run, index, "attention_scores") for index in range(len(run.text))]
    every = [None if score is None else plain((score[0] > MASKED).any(0)) for score in scores]
    groups = grouped(run, every)
    if all(group.support.kind != "two-way" for group in groups):
        return []
    found: list[Picture] = []
    for group in groups:
        label = "Both ways within the image" if group.support.kind == "two-way" else named(group.support, "other")
        name = f"mask-image-{len(found)}"
        found.append(picture(name, label, group, len(run.text), [IMAGES], image[0].bool()))
    return found


def grouped(run: Run, every: list[torch.Tensor | None]) -> list[Group]:
    """The blocks by the shape of their mask; shapes that have no name are told apart by the blocks' layer type."""
    groups: dict[tuple[object, ...], Group] = {}
    for index, visible in enumerate(every):
        if visible is None:
            continue
        support = classify(visible)
        key = (support, "" if support.size or support.kind == "full" else run.model.layer_types[index])
        groups.setdefault(key, Group(support, visible)).blocks.append(index)
    return list(groups.values())[:MOST]


def named(support: Support, other: str) -> str:
    """A mask's shape as a caption."""
    match support.kind:
        case "full":
            return "All before it"
        case "sliding":
            return f"A window of {support.size}"
        case "chunked":
            return f"Chunks of {support.size}"
        case "two-way":
            return "Later positions too"
        case _:
            return f"{other[:1].upper()}{other[1:]}"


def picture(
    name: str,
    label: str,
    group: Group,
    total: int,
    quirks: list[str],
    image: torch.Tensor | None = None,
    *,
    what: str = "query",
) -> Picture:
    """A mask as a picture.

    Args:
        total: number of blocks of the model.
        image: which positions are an image's, ``[positions]``; all of it is shown.
        what: what reaches the keys.
    """
    step = stride(group, bool(image is not None and image[SHOWN:].any()))
    cells = group.visible[::step, ::step][:SHOWN, :SHOWN]
    marked = {} if image is None else {"image": _stretch(image[::step][:SHOWN])}
    return Picture(
        name=name,
        kind="mask",
        label=label,
        quirks=quirks,
        blocks=group.blocks,
        axes=AXES,
        rows=["".join("1" if cell else "0" for cell in row) for row in cells.tolist()],
        step=step,
        marked={where: span for where, span in marked.items() if span},
        statement=_statement(group, total, what, image is not None),
    )


def stride(group: Group, whole: bool) -> int:
    """Positions from one cell to the next: 1 where the first positions already have the shape of all, and not the whole
    must be shown.
    """
    size = len(group.visible)
    if size <= SHOWN or (not whole and classify(group.visible[:SHOWN, :SHOWN]) == group.support):
        return 1
    return -(-size // SHOWN)


def _stretch(image: torch.Tensor) -> list[int]:
    places = image.nonzero().flatten().tolist()
    return [places[0], places[-1]] if places else []


def _statement(group: Group, total: int, what: str, image: bool) -> str:
    support, where = group.support, some(group.blocks, total)
    size = support.size or 0
    match support.kind:
        case "full":
            seen = "every position before it, and itself"
        case "sliding":
            seen = f"itself and the {size - 1} positions before it" if size > 1 else "itself only"
        case "chunked":
            seen = f"the positions before it in its own chunk of {size}, and itself"
        case "two-way" if image:
            seen = "positions before it; one in the image reaches the image's later ones too"
        case "two-way":
            seen = "later positions too"
        case _:
            share = float(group.visible.sum()) / max(float(torch.ones_like(group.visible).tril().sum()), 1)
            seen = f"{share:.0%} of the positions before it, in no fixed window or chunk"
    return f"On {where} a {what} reaches {seen}."
