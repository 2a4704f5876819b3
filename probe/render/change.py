"""The place of the page "What this change does" in a site: a marker, as what stands there is known only once it is
built.
"""

from __future__ import annotations

import os

from probe.render.generated import Generated
from probe.render.page import Composed

TITLE = "What this change does"
FOLDER = "change"
MARKER = "<!-- what this change does -->"
WANTED = "PROBE_PREVIEW"
"""The environment variable that a site is built with the page under."""


def generated() -> list[Generated]:
    """The page for the site's build, where one is wanted."""
    if not os.environ.get(WANTED):
        return []
    top = {"level": 1, "id": "top", "name": TITLE, "children": []}
    composed = Composed(html=f'<h1 id="top">{TITLE}</h1>\n{MARKER}', toc=[top])
    text = "The facts and the pages that a change moves."
    return [Generated(f"{FOLDER}/index.md", TITLE, text, ("toc",), lambda: composed)]
