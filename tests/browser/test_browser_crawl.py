"""A page of each kind: nothing goes wrong in a browser, and JavaScript adds no fact to what stands there without it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

Open = Callable[..., Page]

KINDS = {
    "": "Gemma 4",
    "llama/": "grouped queries",
    "gemma4_text/": "layer_scalar",
    "values/": "attention_keys",
    "values/attention_keys/": "Llama",
    "quirks/": "Grouped",
    "quirks/grouped-query/": "it, of 3",
    "compare/": "Llama",
    "compare/gemma4_text--llama/": "sequential",
    "data/": "index.json",
    "changes/": "no change of fact is on record",
    "guide/": "published weights",
    "how-we-know/": "identity",
}
"""Kinds of pages, and a word that one of its facts has."""

FACTS = """article => [...article.querySelectorAll("td, dd, h1, h2, h3, figcaption, li, p")]
  .filter(each => !each.querySelector("td, dd, li, p, button") && !each.closest("form"))
  .map(each => each.textContent.replace(/\\s+/g, " ").trim()).filter(text => text)"""
SHOWN = """article => [...article.querySelectorAll("td, th, dd, h1, h2, h3, li, p")]
  .filter(each => each.checkVisibility()).map(each => each.textContent).join(" ")"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_shows_its_facts_without_javascript_and_with_it_nothing_goes_wrong(open_page: Open, kind: str) -> None:
    """What the fixture's pages record (errors, failed and foreign requests, shifts) is looked at as the test ends."""
    bare = open_page(f"/{kind}", java_script_enabled=False).locator("article").first
    page = open_page(f"/{kind}")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.wait_for_load_state("networkidle")
    assert KINDS[kind].lower() in bare.evaluate(SHOWN).lower()
    facts = set(bare.evaluate(FACTS))
    assert len(facts) > 4 and set(page.locator("article").first.evaluate(FACTS)) - facts == set()
