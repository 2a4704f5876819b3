"""The switch between standard names, those of the Hugging Face implementation, and other tools'."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import stop_watching

Open = Callable[..., Page]
PLACES = """() => [...document.querySelectorAll("[data-name=text] :is(.naming, .shape.is-current rect)")]
  .map(element => element.getBoundingClientRect()).filter(box => box.width)
  .map(box => [box.x, box.y + scrollY, box.width, box.height].join())"""
SPARE = """() => Math.max(...[...document.querySelectorAll(".value-table .names")].map(names => {
  const shown = [...names.children].map(code => code.getBoundingClientRect().height)
  return names.getBoundingClientRect().height - Math.max(...shown)
}))"""
"""The most height that a row's name has beyond the name shown, in pixels."""
CHIP = "[data-name=text] .shape.is-current svg.{} a.part[aria-label^='mlp_neurons,']"
ROW = "#v-layers-mlp-mlp_neurons .names"


@pytest.mark.parametrize(("width", "layout"), [(1440, "wide"), (390, "narrow")])
def test_the_choice_of_names_holds_on_rows_and_in_diagrams_and_moves_no_diagram(
    open_page: Open, width: int, layout: str
) -> None:
    page = open_page("/gemma4_text/", width)
    chip = page.locator(CHIP.format(layout))
    before = page.evaluate(PLACES)
    assert before and page.evaluate(SPARE) < 8
    expect(page.locator(f"{ROW} .native")).to_be_hidden()
    page.locator("[data-name=text] .naming label", has_text="Hugging Face").click()
    expect(page.locator(f"{ROW} .native")).to_have_text("model.language_model.layers.{i}.mlp.down_proj input 0")
    for shown in (f"{ROW} .native", CHIP.format(layout) + " .renamed >> nth=0"):
        expect(page.locator(shown)).to_be_visible()
    assert chip.locator(".renamed").all_text_contents() == ["down_proj", "input 0"]
    for gone in (f"{ROW} .standard", CHIP.format(layout) + " text:not(.renamed)"):
        expect(page.locator(gone)).to_be_hidden()
    expect(page.locator(".values .naming input[value=native]")).to_be_checked()
    assert page.evaluate(PLACES) == before and page.evaluate(SPARE) < 8
    page.reload()
    page.wait_for_selector("[data-part=block] a.part[aria-pressed]")
    expect(page.locator(f"{ROW} .native")).to_be_visible()
    expect(page.locator("[data-name=text] .naming input[value=native]")).to_be_checked()


def test_a_value_without_a_single_place_keeps_its_name(open_page: Open) -> None:
    page = open_page("/llama4_text/")
    page.locator(".values .naming input[value=native]").check()
    alone = page.locator(".value-table .names:not(:has(.native)) .standard")
    assert alone.count() and alone.first.is_visible()


@pytest.mark.parametrize(
    ("tool", "shown", "whole"),
    [
        ("transformerlens", ["mlp.hook_post"], "blocks.{i}.mlp.hook_post"),
        ("nnterp", ["mlp_neurons", "–"], None),
    ],
)
def test_another_tools_names_are_on_rows_and_chips_and_a_dash_where_it_has_none(
    open_page: Open, tool: str, shown: list[str], whole: str | None
) -> None:
    page = open_page("/llama/")
    page.locator(f"[data-name=text] .naming input[value={tool}]").check()
    chip = page.locator(CHIP.format("wide"))
    assert chip.locator(".renamed").all_text_contents() == shown
    assert ("is-nameless" in (chip.get_attribute("class") or "")) == (whole is None)
    expect(page.locator(f"{ROW} .standard")).to_be_visible(visible=whole is None)
    if whole:
        expect(page.locator(f"{ROW} .{tool}")).to_have_text(whole)
    page.locator("[data-name=text] .naming input[value=standard]").check()
    assert chip.locator(".renamed").count() == 0
    expect(chip.locator("text")).to_be_visible()


@pytest.mark.parametrize("chosen", ["standard", "native"])
def test_rows_on_paper_and_without_scripts_show_both(open_page: Open, chosen: str) -> None:
    page = open_page("/gemma4_text/")
    stop_watching(page)
    page.locator(f".values .naming input[value={chosen}]").check()
    page.emulate_media(media="print")
    bare = open_page("/gemma4_text/", java_script_enabled=False)
    for each in (page, bare):
        for name in ("standard", "native"):
            expect(each.locator(f"{ROW} .{name}")).to_be_visible()
        expect(each.locator(".naming").first).to_be_hidden()
