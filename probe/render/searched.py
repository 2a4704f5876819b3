"""What the theme's search reads of a page: headings and running text, without the markup that it would pass over.

The theme parses this for its index. Elements marked ``data-search-exclude`` (drawings, printouts, tables that repeat
what other pages say) are cut out here as wholes, and markup that the index does not keep, so that it is not parsed.
"""

from __future__ import annotations

import re

_MARKED = re.compile(r"<([a-z][\w-]*)(?=[^>]*\sdata-search-exclude[\s>=])[^>]*>")
_PASSED_OVER = re.compile(r"<(?!/?(?:h[1-6]|p|code|pre|li|ol|ul|sub|sup|section|article|header)\b)[^>]*>")
_CODE = re.compile(r"(<pre\b.*?</pre>)", re.S)
_SPACE = re.compile(r"\s+")


def searched(page: str) -> str:
    """The part of a page's HTML that the search reads."""
    parts, end = [], 0
    for marked in _MARKED.finditer(page):
        if marked.start() >= end:
            parts.append(page[end : marked.start()])
            end = _closed(page, marked)
    parts.append(page[end:])
    text = _PASSED_OVER.sub("", "".join(parts))
    return "".join(part if part.startswith("<pre") else _SPACE.sub(" ", part) for part in _CODE.split(text))


def _closed(page: str, opened: re.Match[str]) -> int:
    """Where the element ends that an opening tag begins: behind the tag itself where nothing closes it."""
    depth = 1
    for tag in re.compile(rf"<(/?){opened[1]}\b[^>]*>").finditer(page, opened.end()):
        depth += -1 if tag[1] else 1
        if not depth:
            return tag.end()
    return opened.end()
