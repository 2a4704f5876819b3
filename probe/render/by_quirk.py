"""The pages of quirks: what each is, how it is measured, and which families have it, with their numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from probe.render import overviews as o
from probe.render.catalog import Family, Stored
from probe.render.methods import Method, methods
from probe.render.notes import source, to_html
from probe.render.pictures.draw import svg
from probe.render.pictures.merged import distinct
from probe.render.pictures.views import small
from probe.render.text import figure, plural, quirk_id, quirk_url, some_blocks, words
from probe.schema import Experiment, Picture, Record, Vision

UP = "../../"
"""From a quirk's page to the site's root."""

COLUMNS = 6
"""Measured numbers that the table shows; what fewest families have is left out beyond that."""

DRAWINGS = 6
"""Families whose pictures stand side by side."""

PARTS = (("text", "In the text model"), ("vision", "In the vision encoder"))
ORDER = ("yes", "inconclusive", "no", "n/a")


@dataclass(frozen=True)
class Finding:
    """One experiment's outcome on one checkpoint."""

    family: Family
    stored: Stored
    experiment: Experiment
    part: Record | Vision | None
    vision: bool

    @property
    def blocks(self) -> int:
        return len(self.part.blocks) if self.part else 0

    @property
    def picture(self) -> Picture | None:
        """The first that shows the quirk, if any does."""
        return next((distinct(p) for p in self.part.pictures if self.shown_by(p)), None) if self.part else None

    def shown_by(self, picture: Picture) -> bool:
        """Whether a picture shows the quirk: it is on its card, and of a block that the quirk holds on."""
        holds = self.experiment.blocks
        return self.experiment.slug in picture.quirks and (
            holds is None or picture.blocks is None or bool({*holds} & {*picture.blocks})
        )


Findings = dict[tuple[str, str], list[Finding]]


def findings(families: Iterable[Family]) -> Findings:
    """Every outcome by slug and by what it is about; families in their order, a family's own page first."""
    found: Findings = {}
    for family in families:
        for stored in family.pages:
            for about, _ in PARTS:
                part = stored.record if about == "text" else stored.record.vision
                for experiment in part.experiments if part else []:
                    finding = Finding(family, stored, experiment, part, about != "text")
                    found.setdefault((experiment.slug, about), []).append(finding)
    return found


def slugs(found: Findings) -> dict[str, str]:
    """Every quirk and its label, by label: those that an experiment looks for, and those that only records know."""
    known = {slug: method.label for (slug, _), method in methods().items()}
    known |= {slug: some[0].experiment.label for (slug, _), some in found.items() if slug not in known}
    return dict(sorted(known.items(), key=lambda item: item[1].lower()))


def page(slug: str, label: str, found: Findings, families: int) -> o.QuirkPage:
    """The page of one quirk. ``families``: how many there are in all."""
    parts = []
    for about, title in PARTS:
        method = methods().get((slug, about))
        mine = found.get((slug, about), [])
        if method or mine:
            parts.append(_part(title, method, mine, families))
    return o.QuirkPage(slug, label, parts, UP + "quirks/", f"{UP}?quirk={slug}")


def index(found: Findings, families: int) -> o.QuirkIndex:
    """All quirks, those of the text models and those of the vision encoders."""
    parts = []
    for about, title in PARTS:
        entries = []
        for slug, label in slugs(found).items():
            method, mine = methods().get((slug, about)), found.get((slug, about), [])
            if method is None and not mine:
                continue
            verdicts = Counter(_of_families(mine).values())
            said = method.doc.partition("\n\n")[0] if method else ""
            url = quirk_url(slug).removeprefix("quirks/")
            entries.append(o.QuirkEntry(slug, label, url, verdicts["yes"], verdicts["inconclusive"], said))
        if entries:
            parts.append((title, entries))
    return o.QuirkIndex(parts, families)


def _of_families(found: Sequence[Finding]) -> dict[str, str]:
    """One verdict a family: the first in `ORDER` that any of its checkpoints has."""
    out: dict[str, str] = {}
    for finding in found:
        name, verdict = finding.family.name, finding.experiment.verdict
        out[name] = min(out.get(name, verdict), verdict, key=ORDER.index)
    return out


def _part(title: str, method: Method | None, found: Sequence[Finding], families: int) -> o.QuirkPart:
    yes = [f for f in found if f.experiment.verdict == "yes"]
    counts = Counter(key for f in yes for key in f.experiment.measured)
    columns = [key for key, _ in counts.most_common(COLUMNS)]
    verdicts = Counter(_of_families(found).values())
    undecided = {f.family.name: f for f in found if f.experiment.verdict == "inconclusive"}
    said = [
        f"{plural(verdicts['yes'], 'family has', 'families have')} it, of {families}",
        plural(verdicts["no"], "does not", "do not") if verdicts["no"] else "",
        f"on {verdicts['n/a']} the part does not exist" if verdicts["n/a"] else "",
        f"on {verdicts['inconclusive']} it is undecided" if verdicts["inconclusive"] else "",
    ]
    return o.QuirkPart(
        title=title,
        method=to_html(method.doc, "how-", 3) if method else None,
        code=source(method.code) if method else None,
        function=f"{method.module}.{method.function}" if method else "",
        columns=[words(key) for key in columns],
        rows=list(_rows(yes, columns)),
        drawings=list(_drawings(yes)),
        undecided=[(_link(f), f.experiment.statement or "") for f in undecided.values()],
        summary="; ".join(filter(None, said)) + ".",
    )


def _drawings(yes: Sequence[Finding]) -> Iterator[Markup]:
    """One picture a family: of all families that have one or, where they are many, of some that do not look alike."""
    found = [(finding, picture) for finding in yes if (picture := finding.picture)]
    few = len({finding.family.name for finding, _ in found}) <= DRAWINGS
    looks: set[str] = set()
    families: set[str] = set()
    for finding, picture in found:
        look = svg(picture, "")
        if finding.family.name in families or (look in looks and not few):
            continue
        looks.add(look)
        families.add(finding.family.name)
        link = _link(finding)
        yield small(link.text, link.url, picture, finding.blocks)
        if len(families) == DRAWINGS:
            return


def _link(finding: Finding) -> o.Link:
    return o.Link(finding.family.default.record.about.title, UP + finding.family.uri(finding.stored))


def _chip(finding: Finding) -> o.Link:
    """The checkpoint, with the way to the quirk's chip on its page."""
    chip = quirk_id(finding.experiment.slug, finding.vision)
    return o.Link(finding.stored.record.checkpoint.id, f"{_link(finding).url}#{chip}")


def _rows(yes: Sequence[Finding], columns: Sequence[str]) -> Iterator[o.QuirkRow]:
    """A row for a family's checkpoints of the same words and numbers; one that was only built has those of its card."""
    same: dict[tuple[str, ...], list[Finding]] = {}
    for finding in yes:
        experiment = finding.experiment
        cells = [figure(experiment.measured[key]) if key in experiment.measured else "" for key in columns]
        where = some_blocks(experiment.blocks, finding.blocks)
        same.setdefault((finding.family.name, experiment.statement or "", where, *cells), []).append(finding)
    for (_, statement, where, *cells), alike in same.items():
        first = alike[0]
        record = first.stored.record
        yield o.QuirkRow(
            family=_link(first),
            checkpoints=[_chip(finding) for finding in alike],
            where=where,
            statement=statement,
            cells=cells,
            run=record.evidence.twin if record.evidence else record.checkpoint.id,
        )
