"""The table of what other tools' names reach on a checkpoint that sees: the text model, the tower, the way between."""

from __future__ import annotations

from markupsafe import Markup

from probe import names
from probe.render.answers import Lookup
from probe.render.know.subject import Subject
from probe.render.places import is_served
from probe.render.text import prose
from probe.schema import Value

PARTS = ("text model", "vision encoder", "image features")


def reach(subject: Subject) -> Lookup | None:
    """For each tool how many of the page's values it has a name for, by part."""
    record = subject.record
    if record.vision is None:
        return None
    parts: dict[str, list[Value]] = {part: [] for part in PARTS}
    for value in filter(is_served, [*record.values, *record.vision.values]):
        vision = value.host.startswith("model.vision")
        parts[PARTS[2] if value.name == "image_features" else PARTS[vision]].append(value)
    rows = [
        [Markup("{}").format(tool), *(_share(_named(tool, values), len(values)) for values in parts.values())]
        for tool in names.SOURCES
    ]
    placed = [sum(value.hf is not None for value in values) for values in parts.values()]
    every = [_share(count, len(values)) for count, values in zip(placed, parts.values(), strict=True)]
    rows = [[Markup("this project, nnsight"), *(_share(len(v), len(v)) for v in parts.values())], *rows]
    rows.insert(1, [Markup("PyTorch, a module or an operation"), *every])
    lead = prose(
        "How many of this page's rows each tool has a name of its own for that stands for the same tensor. Other "
        "tools' names are declared; they name values of text models, so those of a vision encoder have none."
    )
    return Lookup("l-tools", "Rows by tool", lead, ["tool", *PARTS], rows)


def _named(tool: str, values: list[Value]) -> int:
    return sum(names.same(v.name, tool) is not None for v in values if not v.host.startswith("model.vision"))


def _share(count: int, total: int) -> Markup:
    return Markup("none") if not count else Markup(f"{count} of {total}")
