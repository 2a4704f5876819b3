"""The site's navigation: a few sections, with the families in alphabetical groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from probe.guide.patterns import PATTERNS
from probe.render.text import quirk_url, value_url

GROUP = 16
"""Families that a group of letters has at least, as far as there are that many."""


def navigation(
    families: Iterable[tuple[str, str]],
    values: Iterable[str],
    quirks: dict[str, str],
    compared: Iterable[tuple[str, str]],
) -> list[Any]:
    """mkdocs' ``nav``.

    Args:
        families: (title, model_type) pairs.
        values: names of values that have a page.
        quirks: slug to label.
        compared: comparisons made beforehand, (title, address) pairs.
    """
    return [
        {"Families": ["index.md", *groups(sorted(families, key=lambda pair: pair[0].lower()))]},
        {"Values": ["values/index.md", *({name: f"{value_url(name)}index.md"} for name in sorted(values))]},
        {"Quirks": ["quirks/index.md", *({label: f"{quirk_url(slug)}index.md"} for slug, label in quirks.items())]},
        {"Compare": ["compare/index.md", *({title: f"{address}index.md"} for title, address in compared)]},
        {"Guide": ["guide/index.md", *({pattern.title: f"guide/{pattern.slug}.md"} for pattern in PATTERNS)]},
        {"Data": ["data.md", {"Changes of facts": "changes/index.md"}]},
        {"How we know": "how-we-know.md"},
    ]


def groups(families: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Sorted (title, model_type) pairs as sections such as ``C–D``; as plain entries where they are few."""
    entries = [{title: f"{name}/index.md"} for title, name in families]
    if len(entries) <= GROUP:
        return entries
    made: list[tuple[str, str, list[dict[str, Any]]]] = []
    for letter, found in groupby(families, key=lambda pair: pair[0][:1].upper()):
        mine = [{title: f"{name}/index.md"} for title, name in found]
        if made and len(made[-1][2]) < GROUP:
            first, _, before = made[-1]
            made[-1] = (first, letter, before + mine)
        else:
            made.append((letter, letter, mine))
    return [{first if first == last else f"{first}–{last}": entries} for first, last, entries in made]
