"""Comparisons: any checkpoints by address and by choice, and the same as the pages made beforehand."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import stop_watching

Open = Callable[..., Page]
BODIES = """() => [...document.querySelectorAll(".compare-table tbody")].map(body => body.outerHTML).join("")"""
STREAM = """() => [...document.querySelectorAll(".compare-diagram a.add")].map(add => {
  const cell = add.closest("td"), line = getComputedStyle(cell, "::before"), box = add.getBoundingClientRect()
  const middle = cell.getBoundingClientRect().left + parseFloat(line.left) + parseFloat(line.width) / 2
  return box.left + box.width / 2 - middle
})"""
"""How far right of the stream's line each ⊕ stands, in pixels."""
TWO = "/compare/?a=gemma4_text&b=llama4_text"


def bodies(page: Page) -> str:
    """The rows of the table, but for where links lead from."""
    page.wait_for_selector(".compare-table")
    return re.sub(r'href="(http://[^/]+/|(\.\./)+)', 'href="', re.sub(r"\s+", " ", page.evaluate(BODIES)))


def test_a_browser_joins_columns_as_the_pages_made_beforehand_do(open_page: Open) -> None:
    page = open_page("/compare/", java_script_enabled=False)
    pairs = page.locator(".compare-pairs a")
    assert pairs.count() == 3
    for address in pairs.evaluate_all("links => links.map(link => new URL(link.href).pathname)"):
        made = open_page(address)
        first, second = address.strip("/").partition("/")[2].split("--")
        assert bodies(made) == bodies(open_page(f"/compare/?a={first}&b={second}"))


def test_the_diagrams_are_aligned_by_role(open_page: Open) -> None:
    page = open_page("/compare/?a=gemma4_text&b=llama4_text&c=llama")
    page.wait_for_selector(".compare-table")
    for row in ("in", "mix", "feed", "out"):
        tops = page.locator(f".row-{row} svg").evaluate_all("all => all.map(svg => svg.getBoundingClientRect().top)")
        assert len(tops) == 3 and max(tops) - min(tops) < 1, row
    lacked = page.locator(".compare-diagram .is-lacked").evaluate_all("all => all.map(a => a.textContent)")
    assert any("router_logits" in text for text in lacked) and not any("attention_queries" in text for text in lacked)


@pytest.mark.parametrize("width", [1280, 390])
def test_the_stream_runs_through_the_adds(open_page: Open, width: int) -> None:
    page = open_page(TWO, width)
    page.wait_for_selector(".compare-table")
    off = page.evaluate(STREAM)
    assert len(off) >= 4 and max(map(abs, off)) < 1


def test_what_differs_is_marked_and_can_be_shown_alone(open_page: Open) -> None:
    page = open_page(TWO)
    stop_watching(page)
    row = lambda name: page.locator(".compare-facts tr").filter(  # noqa: E731
        has=page.locator("th", has_text=re.compile(f"^{re.escape(name)}$"))
    )
    expect(row("blocks")).to_have_class("differs")
    expect(row("topology")).to_have_class("same")
    expect(row("layers[i].mlp.router_logits")).to_have_class("lacks")
    page.locator(".only").click()
    expect(row("topology")).to_be_hidden()
    expect(row("blocks")).to_be_visible()
    page.wait_for_function("location.search.endsWith('&only')")


def test_what_is_chosen_is_in_the_address_and_back_again(open_page: Open) -> None:
    page = open_page("/gemma4_text/google--gemma-4-26B-A4B/")
    page.locator(".hero a", has_text="Compare it").click()
    page.wait_for_url("**/compare/?a=gemma4_text/google--gemma-4-26B-A4B")
    expect(page.locator(".compare-status")).to_have_text("Choose a second one to compare with.")
    expect(page.locator(".compare-pairs")).to_be_visible()
    stop_watching(page)
    page.locator("select[name=b]").select_option("gemma4_text")
    expect(page.locator(".compare-table thead a")).to_have_count(2)
    expect(page.locator(".compare-pairs")).to_be_hidden()
    shape = page.locator("[data-shape='1']")
    shape.select_option("1")
    expect(shape).to_be_focused()
    page.wait_for_function("location.search.endsWith('&b=gemma4_text&bs=1')")
    again = open_page("/" + page.url.split("/", 3)[3])
    expect(again.locator("[data-shape='1']")).to_have_value("1")
    assert bodies(again) == bodies(page)


def test_an_unknown_name_is_told(open_page: Open) -> None:
    page = open_page("/compare/?a=llama&b=nosuch")
    expect(page.locator(".compare-status")).to_have_text("There is no checkpoint nosuch here; choose another.")


def test_an_index_card_leads_to_a_comparison(open_page: Open) -> None:
    page = open_page("/")
    page.locator(".family-cards a.with").first.click()
    page.wait_for_url("**/compare/?a=*")
    expect(page.locator("select[name=a]")).not_to_have_value("")


@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("width", [390, 768])
def test_on_a_narrow_screen_every_cell_is_seen_and_told_whose_it_is(open_page: Open, width: int, columns: int) -> None:
    page = open_page(TWO + "&c=llama" * (columns == 3), width, 800)
    page.wait_for_selector(".compare-table")
    assert page.evaluate("document.querySelector('.compare-scroll').scrollWidth") <= width
    cells = page.locator(".compare-facts tr:not(.same) td, .compare-diagram td")
    outside = """(cells, width) => cells.map(cell => cell.getBoundingClientRect())
      .filter(box => !box.width || box.left < 0 || box.right > width).length"""
    assert cells.evaluate_all(outside, width) == 0
    heading, row = page.locator(".compare-facts .group").first, page.locator(".compare-facts .differs").first
    before = "cells => cells.map(cell => getComputedStyle(cell, '::before').content)"
    if width == 390 and columns == 3:
        named = [content.strip('"') for content in row.locator("td").evaluate_all(before)]
    else:
        named = heading.locator(".of").all_inner_texts()
        left = "all => all.map(element => Math.round(element.getBoundingClientRect().left))"
        assert heading.locator(".of").evaluate_all(left) == row.locator("td").evaluate_all(left)
    assert named == ["Gemma 4", "Llama 4", "Llama"][:columns]
    same = page.locator(".compare-facts .same td:visible")
    told = "both: " if columns == 2 else "all: "
    assert set(same.evaluate_all(before)) == {f'"{told}"'}
    assert same.count() == page.locator(".compare-facts .same").count()


def test_four_columns_are_stacked_where_they_have_no_room_beside_each_other(open_page: Open) -> None:
    page = open_page(TWO + "&c=llama&d=gemma4_text/google--gemma-4-26B-A4B", 1100)
    page.wait_for_selector(".compare-table")
    tops = "cells => new Set(cells.map(cell => Math.round(cell.getBoundingClientRect().top))).size"
    for width, rows in ((1100, 2), (1300, 1)):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.locator(".row-mix td").evaluate_all(tops) == rows, width
        right = page.locator(".compare-table").evaluate("table => table.getBoundingClientRect().right")
        assert right <= width == page.evaluate("document.documentElement.scrollWidth")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 1440), ("light", 390)])
def test_axe_finds_nothing_serious_in_a_comparison(open_page: Open, axe: str, scheme: str, width: int) -> None:
    page = open_page(TWO, width, color_scheme=scheme)
    page.wait_for_selector(".compare-table")
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    bad = [
        (v["id"], [n["target"] for n in v["nodes"]])
        for v in found["violations"]
        if v["impact"] in ("serious", "critical")
    ]
    assert bad == []
