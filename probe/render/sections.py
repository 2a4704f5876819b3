"""The page's other sections, as contexts for their templates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from markupsafe import Markup

from probe.numerals import unit
from probe.render import context as c
from probe.render.catalog import Family, Stored
from probe.render.figures import equation
from probe.render.notes import note, source, to_html
from probe.render.pictures.views import on_card, on_no_card
from probe.render.second import second
from probe.render.standing import KIND_WORDS, Standing, error_text
from probe.render.text import answer, figure, parameters, quirk_id, quirk_url, some_blocks, words
from probe.schema import Record, Row, Vision
from probe.store import file_stem

Link = Callable[[str], str]
Verdict = Literal["yes", "no", "n/a", "inconclusive"]
TITLES = {"tiny": "tiny twin", "config": "built from config", "weights": "weights run", "missing": "no record"}


def chips(standing: Standing, part: Record | Vision) -> list[c.Chip]:
    """The quirks that hold, of the text model or of the vision encoder."""
    total, vision = len(part.blocks), part is not standing.record
    return [
        c.Chip(
            quirk_id(e.slug, vision),
            e.label,
            e.statement or "",
            some_blocks(e.blocks, total),
            [
                (words(k), figure(v) + (f" = {e.explained[k]}" if k in e.explained else ""))
                for k, v in e.measured.items()
            ],
            standing.words(),
            standing.up + quirk_url(e.slug),
            on_card(standing, e.slug, vision),
        )
        for e in part.experiments
        if e.verdict == "yes"
    ]


def served(record: Record) -> int:
    """How many values the checkpoint has, those of its vision encoder included."""
    rows = [*record.values, *(record.vision.values if record.vision else [])]
    return len([row for row in rows if row.blocks != []])


def hero(standing: Standing, link: Link, page: str) -> c.Hero:
    """The head of the page. ``page``: its address below the site's root."""
    record = standing.record
    checkpoint = record.checkpoint
    facts = [
        ("parameters", parameters(checkpoint.parameters)),
        ("blocks", str(len(record.blocks))),
        ("block shapes", str(len(record.shapes))),
        ("values", str(served(record))),
        ("architecture", checkpoint.architecture),
    ]
    return c.Hero(
        family=record.family,
        title=record.about.title,
        subtitle=record.about.subtitle,
        checkpoint=checkpoint.id,
        standing=f"{KIND_WORDS[checkpoint.kind]}, {checkpoint.dtype}",
        twin=standing.twin_id,
        twin_url=_twin_url(standing, link),
        facts=facts,
        chips=chips(standing, record),
        compare_url=link(f"compare/?a={page.rstrip('/')}"),
    )


def _twin_url(standing: Standing, link: Link) -> str | None:
    return link(standing.twin_uri) if standing.twin_uri is not None else None


def selector(family: Family, current: Stored, link: Link) -> c.Selector:
    entries = []
    for listed in family.listed:
        stored = family.stored.get(listed.file or "")
        if stored is None:
            entries.append(c.Entry(listed.id, None, TITLES["missing"], listed.reason or "not probed here yet", False))
            continue
        record = stored.record
        note = f"run behind it: {record.evidence.twin}" if record.evidence else record.checkpoint.dtype
        entries.append(
            c.Entry(listed.id, link(family.uri(stored)), TITLES[record.checkpoint.kind], note, stored is current)
        )
    return c.Selector(entries)


def vision(standing: Standing, drawn: Markup) -> c.VisionSection | None:
    part = standing.record.vision
    if part is None:
        return None
    facts = [
        ("rows", part.rows),
        ("positions", part.positions),
        ("masking", part.masking),
        ("final norm", part.final_norm),
    ]
    drawings = on_no_card(standing, vision=True)
    return c.VisionSection(part.title, part.module, facts, drawn, chips(standing, part), drawings)


def pictures(standing: Standing) -> c.Pictures | None:
    """The pictures that stand on no card; None where there are none."""
    drawings = on_no_card(standing)
    return c.Pictures(drawings, standing.words()) if drawings else None


def identities(standing: Standing) -> c.Identities:
    rows = []
    for is_vision in (False, True):
        part = standing.record.vision if is_vision else standing.record
        if standing.borrowed(is_vision) and standing.twin is not None:
            part = standing.twin.vision if is_vision else standing.twin
        if part is None:
            continue
        for i in standing.identities(is_vision):
            rows.append(
                c.IdentityRow(
                    i.name,
                    equation(i.expression, part, i.blocks),
                    some_blocks(i.blocks, len(part.blocks)) or "the model",
                    i.holds,
                    error_text(i.max_abs_error),
                    figure(i.tolerance),
                    i.dtype,
                    i.reason,
                    "vision" if is_vision else "text",
                )
            )
    return c.Identities(rows, standing.words())


def experiments(standing: Standing) -> c.Experiments:
    record = standing.record
    found = [(e, len(record.blocks), False) for e in record.experiments]
    if record.vision:
        found += [(e, len(record.vision.blocks), True) for e in record.vision.experiments]
    order: tuple[Verdict, ...] = ("yes", "inconclusive", "no", "n/a")
    verdicts = [
        c.Verdict(
            e.label,
            e.verdict,
            e.statement or "",
            some_blocks(e.blocks, n),
            standing.up + quirk_url(e.slug),
            second(e, record, standing.alike, vision=vision),
        )
        for e, n, vision in sorted(found, key=lambda p: order.index(p[0].verdict))
    ]
    counts = Counter(e.verdict for e, _, _ in found)
    return c.Experiments(verdicts, ", ".join(f"{counts[v]} {v}" for v in order if counts[v]))


def facts(standing: Standing, link: Link) -> c.Facts:
    found = [c.FactRow(f.label, answer(f.value), unit(f.value, f.unit), f.statement) for f in standing.record.facts]
    return c.Facts(found, standing.twin_id if standing.twin else None, _twin_url(standing, link))


def config_cards(record: Record) -> c.ConfigCards:
    def rows(found: Sequence[Row]) -> list[tuple[str, str]]:
        return [(r.name, figure(r.value)) for r in found]

    cards = [c.Card("Config", "config", rows(record.config))]
    if record.vision_config:
        cards.append(c.Card("Vision config", "vision-config", rows(record.vision_config)))
    return c.ConfigCards(cards)


def notes(family: Family, directory: Path, with_vision: bool, link: Link) -> c.Notes | None:
    """What people wrote; None where nobody wrote anything."""

    def page(checkpoint: str) -> str | None:
        found = family.stored.get(file_stem(checkpoint))
        return link(family.uri(found)) if found else None

    body = note(directory / f"{family.name}.md", "n-", page)
    vision = note(directory / f"{family.name}.vision.md", "nv-", page) if with_vision else None
    return c.Notes(body, vision) if body or vision else None


def module(record: Record) -> c.ModuleSection | None:
    """The family module's words and constants; None where the family has no module."""
    about = record.about
    if not about.module:
        return None
    declared = [
        c.DeclaredRow(d.name, source(d.value), to_html(d.doc, "m-", 4) if d.doc else None) for d in about.declared
    ]
    return c.ModuleSection(about.module, to_html(about.doc, "m-", 3), declared)


def provenance(standing: Standing, stored: Stored, link: Link, with_schema: bool) -> c.Provenance:
    record = standing.record
    p, ck = record.provenance, record.checkpoint
    rows = [
        ("checkpoint", ck.id),
        ("standing", KIND_WORDS[ck.kind]),
        ("class", ck.architecture),
        ("dtype", ck.dtype),
        ("attention", ck.attn),
        ("prompt", ck.prompt or "none: nothing ran"),
        ("device", p.device),
        ("versions", f"torch {p.torch}, transformers {p.transformers}, nnsight {p.nnsight}, Python {p.python}"),
        ("sha256 of the " + ("config" if ck.kind == "config" else "weights"), ck.digest),
    ]
    if ck.config_source:
        rows.append(("config taken from", ck.config_source))
    evidence = []
    if record.evidence:
        evidence.append(
            f"Nothing ran on this checkpoint. The run behind it is that of its twin {record.evidence.twin}."
        )
        evidence.append("Compared and equal: " + "; ".join(record.evidence.shared) + ".")
        if record.evidence.differs:
            evidence.append("Not the same: " + "; ".join(record.evidence.differs) + ".")
    return c.Provenance(rows, evidence, link(stored.raw_uri), link("records/schema.json") if with_schema else None)
