"""Which blocks differ from the others, and in what."""

from __future__ import annotations

from markupsafe import Markup

from probe.render.know.subject import Subject, code, listing, say
from probe.render.know.unbuilt import unbuilt
from probe.render.text import figure, plural, words
from probe.schema import Shape, Sublayer

OWN = ("hybrid", "per-block-sizes", "rotary-bases")
"""Quirks that say that blocks differ, whichever blocks they name."""

MOST = 8
"""Kinds of blocks that are told one by one."""

Kind = list[tuple[Shape, list[int]]]


def differing(subject: Subject) -> list[Markup]:
    kinds = _kinds(subject)
    alike = len({_parts(kind) for kind in kinds}) == 1
    said = [_summary(subject, kinds, alike)]
    if 1 < len(kinds) <= MOST:
        said += [_kind(subject, kind, alike) for kind in kinds]
    if len(kinds) > 1:
        text = "Blocks of {label} differ among themselves in {what}."
        said += [say(text, label=kind[0][0].label, what=_within(kind)) for kind in kinds if len(kind) > 1]
    return [*said, *(subject.quirk(slug) for slug in partial(subject)), *unbuilt(subject)]


def partial(subject: Subject) -> list[str]:
    """Quirks that tell some blocks from others and are told neither by the kinds of blocks alone nor where a vector is
    added.
    """
    sets = [{*blocks} for kind in _kinds(subject) for _, blocks in kind]
    found = []
    for slug, e in subject.quirks.items():
        some = e.blocks is not None and 0 < len(e.blocks) < subject.total
        if (
            slug in OWN
            or slug != "looped-blocks"
            and (some and (slug in TOLD or not _is_union({*(e.blocks or [])}, sets)))
        ):
            found.append(slug)
    return found


TOLD = (
    "borrowed-kv",
    "chunked-attention",
    "dense-first-blocks",
    "interleaved-moe",
    "nope-blocks",
    "sliding-window",
)
"""Quirks of some blocks that are told here also where the kinds of blocks show them."""


def _is_union(blocks: set[int], sets: list[set[int]]) -> bool:
    return all(each <= blocks or not each & blocks for each in sets)


def _kinds(subject: Subject) -> list[Kind]:
    """Shapes in groups of one label, the same classes and the same norms; they differ within in sizes or constants."""
    groups: dict[tuple[object, ...], Kind] = {}
    for shape, blocks in subject.shapes():
        parts = tuple((s.host, s.module, bool(s.pre_norm), bool(s.post_norm)) for s in shape.sublayers)
        groups.setdefault((shape.label, shape.topology, parts), []).append((shape, blocks))
    return list(groups.values())


def _blocks(kind: Kind) -> list[int]:
    return sorted(block for _, blocks in kind for block in blocks)


def _summary(subject: Subject, kinds: list[Kind], alike: bool) -> Markup:
    """``alike``: whether the blocks of all kinds are made of the same modules."""
    blocks = plural(subject.total, "block")
    if len(kinds) > 1:
        parts = say(", all made of {parts}", parts=_parts(kinds[0])) if alike else ""
        more = "" if len(kinds) <= MOST else ". These are too many to tell one by one: the diagram's slider has them"
        text = "The {blocks} are of {n} kinds{parts}{more}."
        return say(text, blocks=blocks, n=len(kinds), parts=parts, more=more)
    if len(kinds[0]) > 1:
        text = "All {blocks} have the same modules and norms; they differ in {what}."
        return say(text, blocks=blocks, what=_within(kinds[0]))
    text = "All {blocks} have the same modules, sizes and norms ({label}); what differs is told below."
    if not partial(subject):
        text = "None: all {blocks} are alike ({label}), with the same modules, sizes and norms."
    return say(text, blocks=blocks, label=kinds[0][0][0].label)


def _kind(subject: Subject, kind: Kind, alike: bool) -> Markup:
    shape = kind[0][0]
    parts = "" if alike else say(", made of {parts}", parts=_parts(kind))
    where = subject.where(_blocks(kind))
    sizes = {k: v for k, v in shape.sizes.items() if _size_differs(subject, k)} if len(kind) == 1 else {}
    tail = say("; {sizes}", sizes=listing([f"{words(k)} {figure(v)}" for k, v in sizes.items()])) if sizes else ""
    text = "{where}: {label}{parts}{tail}."
    return say(text, where=where[:1].upper() + where[1:], label=shape.label, parts=parts, tail=tail)


def _parts(kind: Kind) -> Markup:
    """The modules that contribute, and what a block adds of its own."""
    return listing([_part(sub) for sub in kind[0][0].sublayers])


def _part(sub: Sublayer) -> Markup:
    if not sub.host:
        return say("{value} of the block itself", value=code(sub.contribution))
    return say("{host} ({module})", host=code(sub.host), module=code(sub.module))


def _size_differs(subject: Subject, name: str) -> bool:
    """Whether blocks that have the size have it in several numbers."""
    return len({shape.sizes[name] for shape, _ in subject.shapes() if name in shape.sizes}) > 1


def _within(kind: Kind) -> Markup:
    """In what blocks of one kind differ."""
    shapes = [shape for shape, _ in kind]
    names = list(dict.fromkeys(name for shape in shapes for name in shape.sizes))
    sizes = [
        f"{words(name)} ({' or '.join(figure(n) for n in sorted(found))})"
        for name in names
        if len(found := {shape.sizes[name] for shape in shapes if name in shape.sizes}) > 1
    ]
    parts = [*sizes]
    if len({tuple((f.name, f.contribution) for f in shape.factors) for shape in shapes}) > 1:
        parts.append("the constants in their sum")
    elif len({shape.identity for shape in shapes}) > 1:
        parts.append("the terms of their sum")
    if len({shape.lends for shape in shapes}) > 1:
        parts.append("whether they project keys and values of their own")
    if len({tuple((s.pre_norm, s.post_norm) for s in shape.sublayers) for shape in shapes}) > 1:
        parts.append("the names of their norms")
    return listing(parts) if parts else Markup("modules inside their sublayers")
