"""A crawl over the files of a built site: links and anchors that lead nowhere, ids given twice, loads from elsewhere.

``python -m tests.render.crawl SITE`` prints what is wrong, with the page that it is on.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

ORIGIN = "http://site"
LOADS = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href"), ("object", "data")}
RELATIONS = {"stylesheet", "preload", "icon", "modulepreload", "prefetch"}
"""The links of a page's head that a browser loads."""

_OF_A_BLOCK = re.compile(r"(?:vision-)?block-\d+\.(.+)")
"""A fragment that a script reads: a block, and the card that it opens."""


@dataclass
class Page:
    """What a page says of itself.

    Attributes:
        url: below `ORIGIN`.
        links: where its links lead, absolute.
        loads: what a browser loads for it, absolute.
    """

    url: str
    ids: Counter[str] = field(default_factory=Counter)
    links: set[str] = field(default_factory=set)
    loads: set[str] = field(default_factory=set)


class _Reader(HTMLParser):
    def __init__(self, page: Page) -> None:
        super().__init__()
        self._page = page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self._page.ids[given["id"]] += 1
        for name, value in given.items():
            where = urljoin(self._page.url, value)
            if (tag, name) in LOADS and (tag != "link" or RELATIONS & set(given.get("rel", "").split())):
                self._page.loads.add(where)
            elif name in ("href", "xlink:href") and tag != "link":
                self._page.links.add(where)

    handle_startendtag = handle_starttag


class Crawl:
    """Every page of a site's folder that a reader comes to."""

    def __init__(self, site: Path) -> None:
        self._site = site

    @cached_property
    def pages(self) -> dict[str, Page]:
        """By the page's file, below the site's folder."""
        found = {}
        for path in sorted(self._site.rglob("*.html")):
            if path.name == "404.html":
                continue  # its links are made for whatever address it is shown at
            name = path.relative_to(self._site).as_posix()
            page = found[name] = Page(f"{ORIGIN}/{name.removesuffix('index.html')}")
            _Reader(page).feed(path.read_text(encoding="utf-8"))
        return found

    def faults(self) -> Iterator[str]:
        for name, page in self.pages.items():
            yield from (f"{name}: the id {one!r} is given {n} times" for one, n in page.ids.items() if n > 1)
            for link in sorted(page.links | page.loads):
                if wrong := self._wrong(link, link in page.loads):
                    yield f"{name}: {wrong}"

    def _wrong(self, link: str, loaded: bool) -> str | None:
        """What is wrong with a link; None where nothing is, or it leads to another site."""
        bare, fragment = urldefrag(link)
        parts = urlsplit(bare)
        if not bare.startswith(f"{ORIGIN}/"):
            return f"loads {bare}" if loaded and parts.scheme != "data" else None
        name = unquote(parts.path).lstrip("/")
        if not name or name.endswith("/"):
            name += "index.html"
        if not (self._site / name).is_file():
            return f"leads to {name}, which is not there"
        if fragment and (page := self.pages.get(name)) is not None:
            wanted = unquote(fragment)
            inner = _OF_A_BLOCK.fullmatch(wanted)
            if not page.ids[wanted] and not (inner and page.ids[inner[1]]):
                return f"leads to #{wanted} of {name}, which is not there"
        return None


if __name__ == "__main__":
    told = list(Crawl(Path(sys.argv[1])).faults())
    print(*told, sep="\n")
    sys.exit(bool(told))
