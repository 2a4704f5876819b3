"""Tables about modules: their native paths in each architecture, and what they return."""

from __future__ import annotations

from markupsafe import Markup

from probe.render.answers import Lookup
from probe.render.catalog import Family
from probe.render.know.subject import BLOCK, Subject, code, listing, say
from probe.render.standing import Standing
from probe.render.text import prose

STATIONS = (
    ("model.embed_tokens", "token_embeddings"),
    ("model.norm", "final_norm_output"),
    ("model.lm_head", "lm_head_output"),
)
"""Standard names of modules of the whole model, and the value that is each one's output."""


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


def returned(subject: Subject) -> Lookup | None:
    """For every module of a block at whose return a value is read: which element of the return that is."""
    found: dict[str, list[list[Markup]]] = {}
    for value in subject.record.values:
        if (
            value.hf
            and value.hf.side == "out"
            and value.host.startswith(BLOCK)
            and subject.value(value.host, value.name)
        ):
            element = value.hf.element
            what = say("element {n} of a tuple", n=element) if isinstance(element, int) else Markup("the return itself")
            if value.name == "layer_output":
                what = _block_return(subject)
            found.setdefault(value.hf.path, []).append([what, subject.link(value)])
    rows = [
        [code(path), what, listing([link for other, link in reads if other == what])]
        for path, reads in found.items()
        for what in dict.fromkeys(what for what, _ in reads)
    ]
    if not rows:
        return None
    lead = Markup("Of the modules at whose return a value is read.")
    return Lookup("l-returns", "What modules return", lead, ["module", "what is read", "value"], rows)


def _block_return(subject: Subject) -> Markup:
    verdict = next((e.verdict for e in subject.record.experiments if e.slug == "tuple-blocks"), None)
    words = {"yes": "element 0 of a tuple", "no": "the return itself, a tensor"}
    return Markup(words.get(verdict or "", "the stream"))
