"""Which pages of two built sites differ."""

from __future__ import annotations

import html
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["changed", "added", "lost"]

_ARTICLE = re.compile(r"<article\b.*?</article>", re.S)
_TITLE = re.compile(r"<title>(.*?)</title>", re.S)


@dataclass(frozen=True)
class ChangedPage:
    """A page that differs.

    Attributes:
        uri: its folder below the site's root, with a slash at its end; empty for the front page.
        kind: whether both sites have it, or one.
    """

    uri: str
    title: str
    kind: Kind

    @property
    def slug(self) -> str:
        """A file name for it."""
        return self.uri.strip("/").replace("/", "__") or "index"


def changed(before: Path, after: Path, families: Collection[str], without: Collection[str]) -> list[ChangedPage]:
    """The pages whose content differs, navigation aside: the given families' pages first.

    Args:
        before: folder of a built site.
        after: folder of the other, built for the same address.
        families: the families whose facts changed.
        without: pages that are left out, by uri.
    """
    old, new = (_pages(site, without) for site in (before, after))
    found = []
    for uri in {**new, **old}:
        one, other = (_read(site / uri / "index.html") for site in (before, after))
        if _content(one) == _content(other):
            continue
        kind: Kind = "added" if uri not in old else "lost" if uri not in new else "changed"
        found.append(ChangedPage(uri, _title(other or one), kind))
    return sorted(found, key=lambda page: (page.uri.split("/")[0] not in families, page.uri.count("/"), page.uri))


def _pages(site: Path, without: Collection[str]) -> dict[str, None]:
    places = (path.parent.relative_to(site).as_posix() for path in sorted(site.rglob("index.html")))
    uris = ("" if place == "." else f"{place}/" for place in places)
    return dict.fromkeys(uri for uri in uris if uri not in without)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _content(page: str) -> str:
    found = _ARTICLE.search(page)
    return found[0] if found else page


def _title(page: str) -> str:
    found = _TITLE.search(page)
    return html.unescape(found[1]).strip().rpartition(" - ")[0] if found and " - " in found[1] else "page"
