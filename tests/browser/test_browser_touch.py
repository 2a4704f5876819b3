"""Under a finger: what answers to it is high enough to hit, names are seen whole, and words break at their joints."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import stop_watching

Open = Callable[..., Page]
PHONE = {"width": 390, "height": 844, "has_touch": True, "is_mobile": True}
LOW = """() => [...document.querySelectorAll(".md-content :is(a[href], button, summary, select, label)")]
  .filter(each => each.checkVisibility({ visibilityProperty: true }) && !each.closest("thead"))
  .map(each => [each.getBoundingClientRect(), each])
  .filter(([box]) => box.width && box.height < 24)
  .map(([box, each]) => `${each.textContent.trim().slice(0, 30)}: ${box.height.toFixed(1)} px`)"""
CLIPPED = """selects => selects.filter(select => {
  const drawn = document.createElement("canvas").getContext("2d")
  drawn.font = getComputedStyle(select).font
  return drawn.measureText(select.selectedOptions[0].text).width > select.clientWidth - 32
}).map(select => select.selectedOptions[0].text)"""
BROKEN = """tables => tables.flatMap(table => {
  const texts = document.createTreeWalker(table, NodeFilter.SHOW_TEXT), range = document.createRange(), found = []
  while (texts.nextNode()) {
    const text = texts.currentNode
    if (!text.parentElement.checkVisibility() || text.parentElement.closest("thead")) continue
    for (const word of text.data.matchAll(/[A-Za-z0-9]+/g)) {
      range.setStart(text, word.index)
      range.setEnd(text, word.index + word[0].length)
      const lines = new Set([...range.getClientRects()].filter(box => box.width).map(box => Math.round(box.top)))
      if (lines.size > 1) found.push(word[0])
    }
  }
  return found
})"""


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/mixtral/tiny/",
        "/values/",
        "/values/attention_probabilities/",
        "/quirks/",
        "/quirks/grouped-query/",
        "/compare/?a=gpt2&b=mixtral",
        "/guide/",
        "/guide/logit-lens/",
        "/data/",
    ],
)
def test_what_answers_to_a_finger_is_high_enough(open_page: Open, committed: str, path: str) -> None:
    page = open_page(path, of=committed, **PHONE)
    stop_watching(page)
    if "compare" in path:
        page.wait_for_selector(".compare-table")
    page.evaluate(
        """() => {
          for (const card of document.querySelectorAll(".family-cards li")) card.style.contentVisibility = "visible"
          for (const row of document.querySelectorAll(".value-table details, .others")) row.open = true
        }"""
    )
    assert page.evaluate(LOW) == []


def test_under_a_mouse_links_leave_tables_as_dense_as_their_text(open_page: Open, committed: str) -> None:
    page = open_page("/mixtral/tiny/", of=committed)
    assert page.locator(".lookup-table a").first.evaluate("link => link.getBoundingClientRect().height") < 20


@pytest.mark.parametrize("width", [390, 820, 1440])
def test_the_names_of_what_is_compared_are_seen_whole(open_page: Open, committed: str, width: int) -> None:
    page = open_page("/compare/?a=gpt2&b=llama&c=mixtral&d=gpt2/tiny", width, of=committed)
    page.wait_for_selector(".compare-table")
    assert page.locator(".compare-picks select").evaluate_all(CLIPPED) == []


@pytest.mark.parametrize("width", [390, 600, 768, 820, 1440])
def test_words_in_tables_and_cards_break_at_their_joints(open_page: Open, committed: str, width: int) -> None:
    page = open_page("/mixtral/tiny/", width, of=committed)
    stop_watching(page)
    page.evaluate("document.querySelectorAll('.value-table details, .lookups details').forEach(e => e.open = true)")
    assert page.locator(".lookup-table, .value-table").evaluate_all(BROKEN) == []


def test_the_name_of_an_experiment_breaks_at_its_joints(open_page: Open, committed: str) -> None:
    page = open_page("/quirks/grouped-query/", of=committed, **PHONE)
    name = page.locator(".method summary code").first
    assert name.bounding_box()["height"] > 24, "this name takes two lines"  # type: ignore[index]
    assert page.locator(".method").evaluate_all(BROKEN) == []
