"""Markdown to HTML for what people wrote: a family's notes and its module's words."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from markdown import Markdown
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from probe.render.references import resolved

PLAIN = re.compile(r'<span class="(?:n|w)">([^<]*)</span>|<span></span>')
"""Tokens that have no colour of their own, names and spaces: half of what highlighting would weigh."""
EXTENSIONS = ["tables", "sane_lists", "toc", "attr_list", "pymdownx.superfences", "pymdownx.highlight"]


@lru_cache(maxsize=256)
def to_html(text: str, prefix: str, lowest: int) -> Markup:
    """HTML whose headings start at ``lowest`` and whose ids start with ``prefix``."""
    headings = [len(m[1]) for m in re.finditer(r"^(#+) ", re.sub(r"```.*?```", "", text, flags=re.S), re.M)]
    options = {
        "toc": {"baselevel": 1, "slugify": lambda value, _: prefix + re.sub(r"[^\w]+", "-", value.lower()).strip("-")},
        "pymdownx.highlight": {"use_pygments": True, "anchor_linenums": False},
    }
    shift = lowest - min(headings, default=lowest)
    html = PLAIN.sub(r"\1", Markdown(extensions=EXTENSIONS, extension_configs=options).convert(text))
    return Markup(re.sub(r"<(/?)h([1-6])", lambda m: f"<{m[1]}h{min(6, int(m[2]) + shift)}", html))


def note(path: Path, prefix: str, page: Callable[[str], str | None] = lambda _: None) -> Markup | None:
    """A family's note file as HTML, or None where there is none.

    Args:
        page: the address of a checkpoint's page, or None.
    """
    return to_html(resolved(path, page=page), prefix, 3) if path.is_file() else None


@lru_cache(maxsize=256)
def source(text: str) -> Markup:
    """Python source, highlighted."""
    return Markup(PLAIN.sub(r"\1", highlight(text, PythonLexer(), HtmlFormatter(wrapcode=True, cssclass="highlight"))))
