"""Tables of a checkpoint that sees: the modules that an image passes, and the attention on image tokens."""

from __future__ import annotations

from markupsafe import Markup

from probe.render.answers import Lookup
from probe.render.know.subject import Subject, code, listing, say
from probe.render.recipes.images import snippet
from probe.render.text import block_list, figure, prose, some_blocks
from probe.schema import Images, Station

HOOKS = {"in": "pre-hook, {at}", "out": "hook, {at}"}


def way(subject: Subject) -> Lookup | None:
    """Each side of each module from the pixels to the text model: its hook, its shape, what an edit does."""
    run = subject.run
    if run is None or run.images is None:
        return None
    images = run.images
    rows = [
        [code(row.path), say(HOOKS[row.side], at=code(row.element)), _shape(row.shape), _is(subject, row), _edit(row)]
        for row in images.stations
    ]
    lead = prose(
        "An image of {size} pixels became {count} image tokens, at positions {first} to {last} of the prompt{where}. "
        "Each row is one side of a module as a hook gets it, with the shape that it had for this image. The modules "
        "are those whose output the pixels change before the first text block. Noise was added to each tensor and the "
        "logits were compared; an input is replaced, an output changed in place."
    ).format(
        size=images.size,
        count=images.image_tokens,
        first=images.first,
        last=images.last,
        where="" if subject.standing.ran else Markup(" on the twin, which has smaller sizes"),
    )
    return Lookup(
        "l-images", "An image's way, module by module", lead, ["module", "read by", "shape", "is", "edit"], rows
    )


def _shape(shape: list[int]) -> Markup:
    return Markup("[{}]").format(", ".join(map(str, shape)))


def _is(subject: Subject, row: Station) -> Markup:
    said = []
    if row.role == "patch embedding":
        said.append(prose("the pixels" if row.side == "in" else "the patch embedding"))
    if row.role == "block":
        side = "entering" if row.side == "in" else "leaving"
        said.append(say("the encoder's stream {side} blocks {which}", side=side, which=block_list(row.blocks or [])))
    if row.enters == [-1]:
        said.append(prose("what the first text block gets at the image tokens"))
    elif row.enters:
        after = listing(row.enters)
        many = "blocks" if len(row.enters) > 1 else "block"
        said.append(
            say("added to the text stream at the image tokens, after text {many} {after}", many=many, after=after)
        )
    elif row.takes:
        said.append(_taken(subject, row))
    elif row.side == "in" and row.path in _making(subject):
        said.append(prose("what the image tokens are made from"))
    return Markup("; ").join(said)


def _taken(subject: Subject, row: Station) -> Markup:
    """Which of the encoder's blocks a module reads, from the end too where it is one, and the row that is missing."""
    takes = row.takes or []
    stack = [blocks for each in (subject.run.images.stations if subject.run and subject.run.images else [])
             if each.role == "block" and (blocks := each.blocks)]  # fmt: skip
    many = "blocks" if len(takes) > 1 else "block"
    behind = len(stack[0]) - takes[0] if stack and len(takes) == 1 else 0
    place = {1: ", the last", 2: ", the last but one"}.get(behind, "")
    missing = f", without its {row.dropped} row" if row.dropped else ""
    text = "what leaves the encoder's {many} {blocks}{place}{missing}"
    return say(text, many=many, blocks=listing(takes), place=place, missing=missing)


def _making(subject: Subject) -> set[str]:
    """Paths of the modules that make what the text stream gets."""
    images = subject.run.images if subject.run else None
    return {row.path for row in images.stations if row.enters} if images else set()


def _edit(row: Station) -> Markup:
    if row.reaches is None or len(row.reaches) == len(row.blocks or []):
        said = "reaches the logits" if row.edits else "does not reach the logits"
    elif row.reaches:
        said = f"reaches the logits from {some_blocks(row.reaches, 0)} only"
    else:
        said = "does not reach the logits"
    if row.in_place:
        where = f" of {some_blocks(row.in_place, 0)}" if row.blocks else ""
        said += (
            f"; an output{where} that a hook returns in its place did not, since a hook of transformers had kept the "
            "first one"
        )
    return Markup("{}").format(said)


def attention(subject: Subject) -> Lookup | None:
    """The patterns over text and image positions: shape, which keys are image tokens, the share that falls on them."""
    run = subject.run
    if run is None or run.images is None or not run.images.patterns:
        return None
    images, total = run.images, len(run.blocks)
    rows = []
    for pattern in images.patterns:
        for both in (True, False):
            blocks = [block for block in pattern.blocks if (block in pattern.both_ways) == both]
            if blocks:
                ways = "earlier and later ones of their image" if both else "earlier ones only"
                where = some_blocks(blocks, total).replace("all but", "all blocks but")
                rows.append([Markup(where), _shape(pattern.shape), Markup(ways), _shares(images, blocks)])
    for blocks in [images.without_pattern] if images.without_pattern else []:
        rows.append([Markup(some_blocks(blocks, total)), Markup("none"), Markup(""), Markup("")])
    head = ["text blocks", "[batch, heads, query, key]", "image tokens see", "last token's attention on the image"]
    table = Lookup("l-image-attention", "Attention on image tokens", _mask(subject, images), head, rows)
    return Lookup(table.id, table.title, table.lead, table.head, table.rows, snippet(subject.record, images))


def _shares(images: Images, blocks: list[int]) -> Markup:
    found = [share for block in blocks if (share := images.shares[block]) is not None]
    low, high = min(found), max(found)
    return Markup("{}").format(figure(low) if low == high else f"{figure(low)} to {figure(high)}")


def _mask(subject: Subject, images: Images) -> Markup:
    [(entry, _)] = images.token.items()
    checked = (
        "other pixels changed what enters the first text block at these positions and at no other"
        if images.mask_holds
        else "but other pixels changed what enters the first text block at other positions than these"
    )
    return prose(
        "With eager attention a pattern has every image token as a query and as a key, {tokens} of {length} positions "
        "here{where}. Which keys they are: `input_ids[0] == model.config.image_token_id`, an id that config.json "
        "calls {entry}; checked: " + checked + ". The last column is the mean over heads, with seeded weights a number "
        "to compare with and no more. The code sums each head's attention on the image, in one forward and while "
        "generating, where a block keeps the last keys of its window only."
    ).format(
        tokens=images.image_tokens,
        length=images.inputs["input_ids"][-1],
        entry=code(entry),
        where="" if subject.standing.ran else Markup(" on the twin"),
    )
