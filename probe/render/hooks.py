"""mkdocs hooks: adds a page for every record, the records themselves, and the index's cards.

The records are those of ``site_src/records`` or ``PROBE_RECORDS``, the notes those of ``families`` or ``PROBE_NOTES``.
"""

from __future__ import annotations

import os
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import get_toc

from probe.errors import ProbeError
from probe.render import catalog
from probe.render.page import Composed, compose, index_cards
from probe.store import ROOT, records_dir

CARDS = "<!-- family cards -->"
_families: dict[str, catalog.Family] = {}
_pages: dict[str, Composed] = {}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Reads the records and puts one entry a family in the navigation."""
    try:
        families = catalog.read(records_dir())
    except ProbeError as error:
        raise PluginError(str(error)) from error
    _families.clear()
    _families.update(families)
    entries = [{f.default.record.about.title: f"{name}/index.md"} for name, f in families.items()]
    config.nav = [
        {"Atlas": "index.md"},
        {"How we know": "how-we-know.md"},
        *([{"Families": entries}] if entries else []),
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replaces whatever records lie below the docs by those the site is built from, and adds their pages."""
    for file in [f for f in files if f.src_uri.startswith("records/")]:
        files.remove(file)
    _pages.clear()
    schema = records_dir() / "schema.json"
    if schema.is_file():
        files.append(File.generated(config, "records/schema.json", abs_src_path=str(schema)))
    notes = Path(os.environ.get("PROBE_NOTES") or ROOT / "families")
    for family in _families.values():
        for stored in family.pages:
            uri = f"{family.uri(stored)}index.md"
            composed = compose(family, stored, notes, schema.is_file())
            _pages[uri] = composed
            files.append(File.generated(config, uri, content=f"# {composed.title}\n"))
            files.append(File.generated(config, stored.raw_uri, abs_src_path=str(stored.path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Gives a generated page its title and description, and the index its cards' place."""
    if composed := _pages.get(page.file.src_uri):
        page.meta.update(title=composed.title, description=composed.description, hide=["navigation"])
    return markdown


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Puts in what the search index, which has read the page by now, must not hold."""
    composed = _pages.get(page.file.src_uri)
    return composed.whole(output) if composed else output


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Puts the composed page in place of the generated page's Markdown."""
    if composed := _pages.get(page.file.src_uri):
        page.toc = get_toc(composed.toc)
        return composed.html
    return html.replace(CARDS, str(index_cards(_families))) if CARDS in html else html
