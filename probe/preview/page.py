"""The page "What this change does": the facts that differ, links to the pages that do, and pictures of them.

The site is built with a marker on the page, since what stands there is known only once the site is built.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from probe.preview.pages import ChangedPage
from probe.render.generated import Generated
from probe.render.page import Composed
from probe.render.templating import render

TITLE = "What this change does"
FOLDER = "change"
MARKER = "<!-- what this change does -->"
WANTED = "PROBE_PREVIEW"
"""The environment variable that a site is built with the page under."""


@dataclass(frozen=True)
class Shown:
    """A page that differs, as the page lists it.

    Attributes:
        before: its picture before the change, by url; None where there is none.
        after: its picture after it.
    """

    page: ChangedPage
    url: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class ChangePage:
    """What ``templates/change_page.html`` shows."""

    base: str
    facts: Markup
    stale: list[str]
    pages: list[Shown]
    unseen: int


def generated() -> list[Generated]:
    """The page for the site's build, where one is wanted."""
    if not os.environ.get(WANTED):
        return []
    top = {"level": 1, "id": "top", "name": TITLE, "children": []}
    composed = Composed(html=f'<h1 id="top">{TITLE}</h1>\n{MARKER}', later={}, toc=[top])
    text = "The facts and the pages that a change moves."
    return [Generated(f"{FOLDER}/index.md", TITLE, text, ("toc",), lambda: composed)]


def fill(site: Path, base: str, facts: str, stale: Sequence[str], pages: Sequence[Shown], unseen: int) -> None:
    """Put the page's content in its place.

    Args:
        site: folder of a site that was built with the page.
        base: what the change is compared with, in words.
        facts: the differences, Markdown.
        stale: a line for each family whose committed records do not hold.
        pages: the pages that differ.
        unseen: how many of them have no pictures.
    """
    import markdown

    made = Markup(markdown.markdown(facts, extensions=["sane_lists"]))
    content = str(render(ChangePage(base, made, list(stale), list(pages), unseen)))
    path = site / FOLDER / "index.html"
    path.write_text(path.read_text(encoding="utf-8").replace(MARKER, content), encoding="utf-8")
