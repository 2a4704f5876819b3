"""Tables about modules: their native paths in each architecture, what they return, and the model's optional outputs."""

from __future__ import annotations

from markupsafe import Markup

from probe.render.answers import Lookup
from probe.render.catalog import Family
from probe.render.know.subject import BLOCK, Subject, code, say
from probe.render.standing import Standing
from probe.render.text import block_list, prose, some_blocks
from probe.schema import Element, Entries, Output, Returned

STATIONS = (
    ("model.embed_tokens", "token_embeddings"),
    ("model.norm", "final_norm_output"),
    ("model.lm_head", "lm_head_output"),
)
"""Standard names of modules of the whole model, and the value that is each one's output."""

SEQUENCES = ("tuple", "list")
"""What holds one tensor an entry; a cache holds several."""


def paths(family: Family, subject: Subject) -> Lookup | None:
    """Where the standard modules are in every architecture that the family has a record of."""
    subjects: dict[str, Subject] = {subject.record.checkpoint.architecture: subject}
    for stored in family.in_order:
        subjects.setdefault(stored.record.checkpoint.architecture, Subject(Standing(stored.record, None)))
    rows = []
    for name in (*(name for name, _ in STATIONS), *_hosts(subject)):
        found = [_native(each, name) for each in subjects.values()]
        if any(found):
            rows.append([code(name), *(code(path) if path else Markup("") for path in found)])
    if not rows:
        return None
    lead = prose("What `get_submodule` takes on the model, for the names that this project gives.")
    return Lookup("l-paths", "Modules by path", lead, ["standard name", *subjects], rows)


def _hosts(subject: Subject) -> list[str]:
    return list(dict.fromkeys([BLOCK, *(v.host for v in subject.record.values if v.host.startswith(f"{BLOCK}."))]))


def _native(subject: Subject, name: str) -> str | None:
    for station, value_name in STATIONS:
        if station == name:
            value = subject.value("model", value_name)
            return value.hf.path if value and value.hf and value.hf.side == "out" else None
    return subject.block_path if name == BLOCK else subject.native(name)


def named(subject: Subject, value: str) -> Markup:
    """A standard value by host and name, leading to its row where the page has one."""
    host, _, name = value.rpartition(".")
    found = subject.value(host, name)
    return subject.link(found) if found else code(value.removeprefix(f"{BLOCK}."))


def returned(subject: Subject) -> Lookup | None:
    """What every module that was called returned, element by element."""
    rows = [
        [code(row.path or "the model"), code(row.module), _elements(subject, row), Markup(_where(subject, row))]
        for row in subject.record.returned
    ]
    if not rows:
        return None
    provenance = (subject.run or subject.record).provenance
    lead = prose(
        "What each module's forward returned, under eager attention and transformers {version}{where}. A name says "
        "that the two were compared and are equal."
    ).format(version=provenance.transformers, where="" if subject.standing.ran else Markup(", on the twin"))
    return Lookup("l-returns", "What modules return", lead, ["module", "class", "returns", "blocks"], rows)


def _where(subject: Subject, row: Returned) -> str:
    vision = subject.record.vision
    total = len(vision.blocks) if row.vision and vision else subject.total
    return some_blocks(row.blocks, total).replace("all but", "all blocks but")


def _elements(subject: Subject, row: Returned) -> Markup:
    if len(row.elements) == 1 and row.elements[0].position is None:
        return element(subject, row.elements[0])
    parts = [say("{at}: {what}", at=code(e.position), what=element(subject, e)) for e in row.elements]
    return say("{type} of {parts}", type=code(row.type), parts=Markup("; ").join(parts))


def element(subject: Subject, part: Element) -> Markup:
    """One position of a return: its type, its shape, and what it is."""
    what = named(subject, part.value) if part.value else code(part.made) if part.made else Markup("")
    shape = Markup(" [{}]").format(", ".join(map(str, part.shape))) if part.shape is not None else Markup("")
    kind = "None" if part.type == "NoneType" else part.type
    return Markup("{}{}{}{}").format(kind, shape, Markup(", ") if what else "", what)


def outputs(subject: Subject) -> Lookup | None:
    """What the model returns under each flag that asks for more."""
    run = subject.run
    if run is None or not run.outputs:
        return None
    several = {row.flag for row in run.outputs if row.load == "eager"}
    default = "under the default attention"
    rows = []
    for row in run.outputs:
        load = Markup("") if row.flag not in several else Markup("under eager" if row.load == "eager" else default)
        rows.append([code(row.flag), load, prose(row.statement), _equals(subject, row), _gaps(row)])
    blocks = len(run.blocks)
    words = "of {blocks} blocks" if subject.standing.ran else "on the twin, which has {blocks} blocks"
    lead = prose("What the call returns when a flag asks for more, " + words + ".").format(blocks=blocks)
    head = ["flag", "load", "what comes", "which is", "without keys and values"]
    return Lookup("l-outputs", "What outputs hold", lead, head, rows)


def _equals(subject: Subject, row: Output) -> Markup:
    """The values that entries are, or what they are of them; and which entries equal no value that was read."""
    said = [_entries(subject, part) for part in row.equals]
    told = {*row.missing, *(entry for part in row.equals for entry in part.entries)}
    if row.shapes and row.type in SEQUENCES and (left := [k for k in range(row.length or 0) if k not in told]):
        said.append(say("{at}: none of the values read", at=_at(left)))
    return Markup("; ").join(said)


def _at(entries: list[int]) -> str:
    return ("entry " if len(entries) == 1 else "entries ") + block_list(entries)


def _entries(subject: Subject, part: Entries) -> Markup:
    at, value = _at(part.entries), code(part.made) if part.made else named(subject, part.value)
    if not part.blocks:
        return say("{at}: {value}", at=at, value=value)
    where = ("block " if len(part.blocks) == 1 else "blocks ") + block_list(part.blocks)
    return say("{at}: {value} of {where}", at=at, value=value, where=where)


def _gaps(row: Output) -> Markup:
    return Markup(block_list(row.missing) if row.missing else "")
