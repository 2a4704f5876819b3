"""Everything that the site has because there are records: pages, data, and parts of hand-written pages."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from markupsafe import Markup

from probe.index import Index
from probe.render import by_quirk, by_value, catalog, guide, home
from probe.render.catalog import Family, Stored
from probe.render.changelog import changes
from probe.render.compare import pages as compare
from probe.render.compare.column import column
from probe.render.indexing import index
from probe.render.llms import llms
from probe.render.navigation import navigation
from probe.render.page import Composed, brief, compose, title
from probe.render.places import Place, by_name
from probe.render.templating import render
from probe.render.text import quirk_url, value_url
from probe.schema import json_schema
from probe.schema.guide import GuideResults
from probe.schema.kernels import KernelResults
from probe.store import ROOT, canonical


@dataclass(frozen=True)
class Generated:
    """A page.

    Attributes:
        uri: its Markdown file would be there.
        hide: the theme's sidebars that it goes without.
        compose: makes it.
        brief: what the search reads of it where that is its title only; None where it reads all that is not marked.
    """

    uri: str
    title: str
    description: str
    hide: tuple[str, ...]
    compose: Callable[[], Composed]
    brief: str | None = None


@dataclass(frozen=True)
class Site:
    """The families of one build. ``schema``: the records' schema, where there is one."""

    families: dict[str, Family]
    notes: Path
    schema: Path | None
    records: Path

    @staticmethod
    def read(records: Path, notes: Path) -> Site:
        """Reads the records. Raises ProbeError where they are missing or broken."""
        schema = records / "schema.json"
        return Site(catalog.read(records), notes, schema if schema.is_file() else None, records)

    @cached_property
    def values(self) -> Mapping[str, list[Place]]:
        return by_name(self.families.values())

    @cached_property
    def served(self) -> list[str]:
        """Names of the values that some family serves, each of which has a page."""
        return [name for name, places in self.values.items() if any(place.served for place in places)]

    @cached_property
    def findings(self) -> by_quirk.Findings:
        return by_quirk.findings(self.families.values())

    @cached_property
    def index(self) -> Index:
        return index(list(self.families.values()), {name: self.values[name] for name in self.served})

    def navigation(self) -> list[Any]:
        titles = [(family.default.record.about.title, name) for name, family in self.families.items()]
        pairs = [(compare.name(pair), compare.address(pair)) for pair in compare.pairs(self.families.values())]
        return navigation(titles, self.served, by_quirk.slugs(self.findings), pairs)

    def pages(self) -> list[Generated]:
        """All pages, none of them composed yet."""
        made = [self._family(family, stored) for family in self.families.values() for stored in family.pages]
        made += [self._value(name) for name in self.served]
        made += [self._changes(), self._any(), *map(self._pair, compare.pairs(self.families.values()))]
        return made + [self._quirk(slug, label) for slug, label in by_quirk.slugs(self.findings).items()]

    def included(self) -> dict[str, str]:
        """Markers in hand-written pages, and what stands there."""
        total = len(self.families)
        return {
            "<!-- family cards -->": str(home.index(self.families.values())),
            "<!-- values by host -->": str(render(by_value.index(self.values, total))),
            "<!-- quirks -->": str(render(by_quirk.index(self.findings, total))),
            **guide.included(self.families),
        }

    def copied(self) -> Iterator[tuple[str, Path]]:
        """Files that are published as they are."""
        yield "CITATION.cff", ROOT / "CITATION.cff"
        if self.schema:
            yield "records/schema.json", self.schema
        for family in self.families.values():
            yield from ((stored.raw_uri, stored.path) for stored in family.pages)

    def written(self, address: str) -> Iterator[tuple[str, str]]:
        """Files of data made from the records. ``address``: the site's."""
        yield "index.json", self.index.model_dump_json(by_alias=True) + "\n"
        yield "index.schema.json", json.dumps(Index.model_json_schema(by_alias=True), indent=1) + "\n"
        yield "guide/results.schema.json", json.dumps(GuideResults.model_json_schema(), indent=1) + "\n"
        yield "kernels.schema.json", json.dumps(KernelResults.model_json_schema(), indent=1) + "\n"
        yield "llms.txt", llms(self.index, address)
        if not self.schema:
            yield "records/schema.json", canonical(json_schema())
        for family in self.families.values():
            for stored in family.pages:
                yield f"{family.uri(stored)}column.json", column(family, stored).model_dump_json()

    def _family(self, family: Family, stored: Stored) -> Generated:
        return Generated(
            uri=f"{family.uri(stored)}index.md",
            title=title(family, stored),
            description=stored.record.about.subtitle,
            hide=("navigation",),
            compose=partial(compose, family, stored, self.notes, self.schema is not None),
            brief=None if stored is family.default else brief(title(family, stored)),
        )

    def _value(self, name: str) -> Generated:
        def made() -> Composed:
            return _plain(render(by_value.page(name, self.values[name], len(self.families))), name)

        text = next(place.value.description for place in self.values[name] if place.served)
        return Generated(f"{value_url(name)}index.md", name, text, ("toc",), made)

    def _changes(self) -> Generated:
        def made() -> Composed:
            return _plain(render(changes(self.records, set(self.families))), "Changes of facts")

        text = "What was measured otherwise than before, commit by commit."
        return Generated(
            "changes/index.md", "Changes of facts", text, ("navigation", "toc"), made, brief("Changes of facts")
        )

    def _any(self) -> Generated:
        def made() -> Composed:
            return _plain(compare.any_page(list(self.families.values())), "Compare")

        text = "Two to four checkpoints side by side: diagrams, facts and values."
        return Generated("compare/index.md", "Compare", text, ("navigation", "toc"), made, brief("Compare"))

    def _pair(self, pair: tuple[Family, Family]) -> Generated:
        name = compare.name(pair)

        def made() -> Composed:
            return _plain(compare.pair_page(pair), name)

        text = f"{name} side by side: diagrams, facts and values."
        return Generated(f"{compare.address(pair)}index.md", name, text, ("navigation", "toc"), made, brief(name))

    def _quirk(self, slug: str, label: str) -> Generated:
        def made() -> Composed:
            return _plain(render(by_quirk.page(slug, label, self.findings, len(self.families))), label)

        text = f"{label}: how it is measured, and which families have it."
        return Generated(f"{quirk_url(slug)}index.md", label, text, ("toc",), made)


def _plain(page: Markup, name: str) -> Composed:
    """A page without a table of contents."""
    return Composed(str(page), [{"level": 1, "id": "top", "name": html.escape(name), "children": []}])
