"""mkdocs hooks: the pages that are made from the records, the data beside them, and what hand-written pages include.

The records are those of ``site_src/records`` or ``PROBE_RECORDS``, the notes those of ``families`` or ``PROBE_NOTES``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import get_toc

from probe.errors import ProbeError
from probe.kernels import results as kernels
from probe.render import change
from probe.render.ahead import Ahead
from probe.render.generated import Generated, Site
from probe.render.page import Composed
from probe.render.references import resolved
from probe.render.searched import searched
from probe.store import ROOT, records_dir

_site: list[Site] = []
_ahead: list[Ahead] = []
_pages: dict[str, Generated] = {}
_composed: dict[str, Composed] = {}
_included: dict[str, str] = {}
_styles: list[str] = []
_SHEET = "assets/atlas.css"
"""The one style sheet that a browser loads."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Reads the records and makes the navigation from them; refuses here what a page could not read."""
    notes = Path(os.environ.get("PROBE_NOTES") or ROOT / "families")
    try:
        site = Site.read(records_dir(), notes)
        pages = site.pages()
        kernels.committed()
    except ProbeError as error:
        raise PluginError(str(error)) from error
    _pages.clear()
    _pages.update({page.uri: page for page in [*pages, *change.generated()]})
    _included.clear()
    _included.update(site.included())
    config.nav = site.navigation() + [{page.title: page.uri} for page in change.generated()]
    _styles[:], config.extra_css = config.extra_css, [_SHEET]
    _site[:] = [site]
    _end()
    _ahead[:] = [Ahead(site, pages)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replaces whatever records lie below the docs by those the site is built from, and adds pages and data.

    The style sheets become one, as each that a browser loads costs it more than what stands in it.
    """
    sheets = {file.src_uri: file for file in files if file.src_uri in _styles}
    for file in [*sheets.values(), *(f for f in files if f.src_uri.startswith("records/"))]:
        files.remove(file)
    files.append(File.generated(config, _SHEET, content="\n".join(sheets[uri].content_string for uri in _styles)))
    [site] = _site
    for uri, path in site.copied():
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    for uri, text in site.written(config.site_url or "/"):
        files.append(File.generated(config, uri, content=text))
    for page in _pages.values():
        files.append(File.generated(config, page.uri, content=f"# {page.title}\n"))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Gives a generated page its title, its description and its sidebars, and a page of the guide its numbers."""
    if made := _pages.get(page.file.src_uri):
        page.meta.update(title=made.title, description=made.description, hide=list(made.hide))
    if page.file.src_uri.startswith("guide/"):
        try:
            return resolved(ROOT / "site_src" / page.file.src_uri, markdown)
        except ProbeError as error:
            raise PluginError(str(error)) from error
    return markdown


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Gives the search what it reads of a page, and a hand-written page what it includes."""
    if made := _pages.get(page.file.src_uri):
        if made.brief is not None:
            return made.brief
        _composed[made.uri] = composed = _taken(made)
        page.toc = get_toc(composed.toc)
        return searched(composed.html)
    for marker, part in _included.items():
        html = html.replace(marker, part)
    return html


@event_priority(-100)
def on_page_context(context: dict[str, Any], page: Page, config: MkDocsConfig, nav: Any) -> dict[str, Any]:
    """Gives a page its HTML, behind the search; pages that it knows by title only are composed here, one at a time."""
    if made := _pages.get(page.file.src_uri):
        composed = _composed.pop(made.uri, None) or _taken(made)
        page.toc, page.content = get_toc(composed.toc), composed.html
    return context


def on_post_build(config: MkDocsConfig) -> None:
    _end()


def on_build_error(error: Exception) -> None:
    _end()


def _taken(page: Generated) -> Composed:
    """A page. Its error is one that mkdocs knows, and so tells once."""
    try:
        return _ahead[0].take(page)
    except ProbeError as error:
        raise PluginError(str(error)) from error


def _end() -> None:
    for ahead in _ahead:
        ahead.stop()
    _ahead.clear()
