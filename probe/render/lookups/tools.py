"""The tables of other tools' names: those that mean another tensor, and what names reach where a checkpoint sees."""

from __future__ import annotations

from markupsafe import Markup

from probe import names
from probe.render.answers import Lookup
from probe.render.know.subject import BLOCK, Subject, code, say
from probe.render.lookups.stream import place
from probe.render.other_names import Told, loads, told
from probe.render.places import is_served
from probe.render.text import prose
from probe.schema import Value

PARTS = ("text model", "vision encoder", "image features")


def reach(subject: Subject) -> Lookup | None:
    """For each tool how many of the page's values it has a name for, and which, by part."""
    record = subject.record
    if record.vision is None:
        return _watched(subject)
    parts: dict[str, list[Value]] = {part: [] for part in PARTS}
    for value in filter(is_served, [*record.values, *record.vision.values]):
        vision = value.host.startswith("model.vision")
        parts[PARTS[2] if value.name == "image_features" else PARTS[vision]].append(value)
    rows = [
        [Markup("{}").format(tool), *(_reached(subject, tool, values) for values in parts.values())]
        for tool in names.TOOLS
    ]
    placed = [sum(value.hf is not None for value in values) for values in parts.values()]
    every = [_share(count, len(values)) for count, values in zip(placed, parts.values(), strict=True)]
    rows = [[Markup("this project, nnsight"), *(_share(len(v), len(v)) for v in parts.values())], *rows]
    rows.insert(1, [Markup("PyTorch, a module or an operation"), *every])
    lead = prose(
        "Which of this page's rows each tool reaches by a name of its own that stands for the same tensor, and how "
        "many: in each cell stand those it has, or those it lacks where they are fewer. Other tools' names are "
        "declared; they name values of text models, so those of a vision encoder have none."
    )
    return Lookup("l-tools", "Rows by tool", lead, ["tool", *PARTS], rows)


def _watched(subject: Subject) -> Lookup | None:
    """The same where the encoder has no standard names: its modules are reached by hooks alone."""
    images = subject.run.images if subject.run else None
    if images is None:
        return None
    values = [value for value in subject.record.values if is_served(value)]
    blocks = max((at for at, row in enumerate(images.stations, 1) if row.role == "block"), default=0)
    sides = [count for count in (blocks, len(images.stations) - blocks) if count]
    rows = [
        [Markup("this project, nnsight"), _share(len(values), len(values))]
        + [Markup("none by name, all by hooks") for _ in sides],
        [
            Markup("PyTorch, a module or an operation"),
            _share(sum(value.hf is not None for value in values), len(values)),
            *(_share(count, count) for count in sides),
        ],
        *(
            [Markup("{}").format(tool), _reached(subject, tool, values), *(_share(0, count) for count in sides)]
            for tool in names.TOOLS
        ),
    ]
    lead = prose(
        "Which of this page's rows each tool reaches by a name of its own that stands for the same tensor, and how "
        "many: in each cell stand those it has, or those it lacks where they are fewer. Of the sides of modules that "
        "an image passes, how many it reaches. Other tools' names are declared; they name values of text models."
    )
    way = ["image's way to the encoder's last block", "from there to the text"] if len(sides) > 1 else ["image's way"]
    return Lookup("l-tools", "Rows by tool", lead, ["tool", "text model", *way], rows)


def _reached(subject: Subject, tool: str, values: list[Value]) -> Markup:
    """How many rows a tool has names for, and which: those with a name or those without, whichever are fewer."""
    named, without = ([v for v in values if _has(subject, tool, v) == wanted] for wanted in (True, False))
    if not named or not without:
        return _share(len(named), len(values))
    few, words = (named, "{count}: {rows}") if len(named) <= len(without) else (without, "{count}, not {rows}")
    return say(words, count=_share(len(named), len(values)), rows=subject.links(few))


def _has(subject: Subject, tool: str, value: Value) -> bool:
    own = [] if value.host.startswith("model.vision") else told(subject, value)
    return any(one.name.tool == tool and one.differs is None for one in own)


def _share(count: int, total: int) -> Markup:
    return Markup("none") if not count else Markup(f"{count} of {total}")


def misleading(subject: Subject) -> Lookup | None:
    """The names by which one may take another tensor for a value, with the places of both."""
    found = [(value, one) for value in subject.record.values for one in told(subject, value) if one.differs]
    if not found:
        return None
    tools = [tool for tool in names.TOOLS if loads(subject, tool)]
    lead = prose(
        "Declared, read in the source of "
        + " and ".join(f"{tool} {names.TOOLS[tool].version}" for tool in tools)
        + "; which hold here is told by what was measured. The names that mean the same are on the values' cards."
    )
    rows = [[code(one.name.name), subject.link(value), place(value), _is(subject, one)] for value, one in found]
    return Lookup("l-misleading", "Same name, different tensor", lead, ["name", "is not", "PyTorch", "but"], rows)


def _is(subject: Subject, one: Told) -> Markup:
    """What a name stands for, with its place where it is a value of ours; a parallel block has no middle."""
    words = prose(one.differs or "")
    wanted = [one.name.instead, "layer_input"] if one.name.instead else []
    value = next((found for name in wanted if name and (found := subject.value(BLOCK, name))), None)
    return say("{words}: {link}, {at}", words=words, link=subject.link(value), at=place(value)) if value else words
