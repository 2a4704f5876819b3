"""The page "What this change does": the facts that differ, links to the pages that do, and pictures of them.

It is put in the place of the marker that the site was built with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from probe.preview.pages import ChangedPage
from probe.render.change import FOLDER, MARKER
from probe.render.templating import render


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
