"""The header's search: names with underscores and paths are whole words, and whole words come first."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import stop_watching

Open = Callable[..., Page]
HELD = {"gpt2", "llama", "mixtral"}
"""The families of the site of committed records."""

HREFS = "links => links.map(link => link.getAttribute('href'))"


def _links(page: Page, query: str) -> list[str]:
    """Asks once; path and anchor of each result, in order, those of a result's sections after its own.

    The theme lists results as they come, so they are read together, and again until nothing has changed.
    """
    page.wait_for_function("window.document$ && document.documentElement.classList.contains('js')")
    stop_watching(page)
    page.locator(".md-search__input").fill(query)
    page.keyboard.press("End")  # the theme looks when a key is let go
    results = page.locator(".md-search-result__item")
    expect(results.first).to_be_visible(timeout=30_000)
    found: list[str] = []
    while found != (found := results.locator("a").evaluate_all(HREFS)):
        page.wait_for_timeout(250)
    return [f"{url.path}#{url.fragment}" for url in map(urlsplit, found)]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("attention_head_outputs", "/values/attention_head_outputs/"),
        ("gemma-4-26B-A4B", "26B-A4B"),
        ("layers.{i}.self_attn", "self_attn"),
        ("+gemma +26B", "26B-A4B"),
    ],
)
def test_search_finds_values_checkpoints_and_paths(open_page: Open, query: str, found: str) -> None:
    assert any(found in link for link in _links(open_page("/"), query))


@pytest.mark.parametrize(
    ("query", "first", "families"),
    [
        ("o_proj", "/llama/#h-layers-self_attn-LlamaAttention", ["llama", "mixtral"]),
        ("mlp.c_proj", "/gpt2/#h-layers-mlp-GPT2MLP", ["gpt2"]),
        ("model.layers.0.mlp.c_proj", "/gpt2/#h-layers-mlp-GPT2MLP", ["gpt2"]),
        ("router_logits", "/values/router_logits/#", ["mixtral"]),
        ("router logits", "/values/router_logits/#", []),
        ("logits", "/values/logits/#", []),
        ("lm_head.no_such_part", "/values/lm_head_output/#", []),
    ],
)
def test_a_whole_name_comes_first(open_page: Open, committed: str, query: str, first: str, families: list[str]) -> None:
    """The families that have the name come before any other; where none has all of a path, a part of it will do."""
    links = _links(open_page("/", of=committed), query)
    sections = [link for link in links if link.startswith("/values/") or not link.endswith("#")]
    assert sections[0] == first, links
    found = dict.fromkeys(name for name in (link.split("/")[1] for link in links) if name in HELD)
    assert set(list(found)[: len(families)]) == set(families)
