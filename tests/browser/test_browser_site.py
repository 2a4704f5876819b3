"""The site around the figure: navigation, search, chips, dark mode, phones, print, no scripts, accessibility."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import stop_watching

Open = Callable[..., Page]
SEEDS = ["/gemma4_text/", "/llama4_text/"]
ALL = ["/", "/how-we-know/", *SEEDS, "/llama/", "/gemma4_text/google--gemma-4-26B-A4B/", "/gemma4_text/tiny/"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/", "/how-we-know/", *SEEDS, "/gemma4_text/google--gemma-4-26B-A4B/"])
def test_axe_finds_nothing_serious(open_page: Open, axe: str, path: str, scheme: str) -> None:
    page = open_page(path, color_scheme=scheme)
    if path != "/" and "how" not in path:
        stop_watching(page)
        page.locator("[data-name=text] .shape.is-current svg.wide a.part.chip").nth(3).click()
        page.locator("#v-layers-self_attn-attention_keys summary").click()
        page.locator(".quirk summary").first.click()
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    bad = [
        (v["id"], v["impact"], n["target"], n["failureSummary"])
        for v in found["violations"]
        if v["impact"] in ("serious", "critical")
        for n in v["nodes"]
    ]
    assert bad == []
    assert found["testEngine"]["version"].startswith("4.")


def test_the_tabs_keep_their_contrast_while_the_page_moves(open_page: Open) -> None:
    """The theme fades its tabs in after loading and out on a scroll; a link that is half there cannot be read."""
    page = open_page("/gemma4_text/")
    for top in (0, 600, 0):
        page.evaluate(f"scrollTo(0, {top})")
        found = page.locator(".md-tabs__link").evaluate_all(
            "links => links.map(getComputedStyle).map(style => [style.opacity, style.transitionDuration])"
        )
        assert found and set(map(tuple, found)) == {("1", "0s")}


@pytest.mark.parametrize("width", [1440, 1220, 965])
def test_no_table_reaches_under_the_table_of_contents(open_page: Open, committed: str, width: int) -> None:
    page = open_page("/gpt2/", width=width, of=committed)
    stop_watching(page)
    wider = page.evaluate(
        """() => {
          document.querySelectorAll(".lookups details").forEach(each => each.open = true)
          return [...document.querySelectorAll(".lookup-table")]
            .filter(table => table.offsetWidth > table.closest("section").offsetWidth).map(table => table.innerText)
        }"""
    )
    assert page.locator(".lookup-table").count() > 5 and wider == []


@pytest.mark.parametrize("path", ALL)
def test_no_page_scrolls_sideways(open_page: Open, path: str) -> None:
    page = open_page(path)
    stop_watching(page)
    for width in (1440, 1024, 768, 360):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        wide = page.evaluate(
            """() => [...document.querySelectorAll(".md-content *")].filter(e => {
              const box = e.getBoundingClientRect()
              return box.width && (box.right > innerWidth + 1 || box.left < -1)
                && getComputedStyle(e).visibility !== "hidden"
                && !e.closest(".listing, pre, [hidden], svg, thead, .ticks, .md-typeset__scrollwrap")
            }).map(e => e.tagName + "." + e.className)"""
        )
        assert wide == [], width


@pytest.mark.parametrize(("width", "shown"), [(360, "narrow"), (1440, "wide")])
def test_one_layout_of_the_diagram_is_shown_at_readable_size(open_page: Open, width: int, shown: str) -> None:
    page = open_page("/gemma4_text/", width)
    visible = page.locator("[data-name=text] .shape.is-current svg:visible")
    assert visible.count() == 1
    assert shown in (visible.get_attribute("class") or "")
    scale = visible.evaluate("svg => svg.getBoundingClientRect().width / svg.viewBox.baseVal.width")
    assert scale > 0.9


def test_the_name_of_a_class_heads_a_table_in_its_own_letters(open_page: Open, committed: str) -> None:
    page = open_page("/mixtral/", of=committed)
    head = page.locator(".lookup-table thead th", has_text="MixtralForCausalLM")
    assert head.evaluate("cell => cell.innerText") == "MixtralForCausalLM"


def test_no_cell_of_a_quirks_table_stands_empty(open_page: Open, committed: str) -> None:
    page = open_page("/quirks/qkv-bias/", of=committed)
    empty = page.locator(".wide-table td.number:empty")
    assert empty.count()
    assert set(empty.evaluate_all("all => all.map(cell => getComputedStyle(cell, '::after').content)")) == {'"–"'}


def test_on_a_phone_an_identity_begins_at_the_margin_and_has_its_figures_in_one_line(
    open_page: Open, committed: str
) -> None:
    page = open_page("/mixtral/tiny/", width=390, of=committed)
    row = page.locator(".identity-table tbody tr").first
    left = "cell => cell.getBoundingClientRect().left"
    assert row.locator("th").evaluate(left) == page.locator("#identities").evaluate(left)
    tops = row.locator("td").evaluate_all("all => all.map(cell => Math.round(cell.getBoundingClientRect().top))")
    assert len(tops) == 3 and len(set(tops)) == 1


@pytest.mark.parametrize("width", [600, 820, 950])
def test_on_a_tablet_rows_have_columns_and_what_a_cell_opens_is_as_wide_as_its_row(
    open_page: Open, committed: str, width: int
) -> None:
    page = open_page("/mixtral/tiny/", width, of=committed)
    row = page.locator(".value-table tbody tr").first
    row.locator("summary").click()
    name, layout, what, opened = (
        row.locator(part).first.bounding_box() for part in ("th", ".layout", ".what", ".card-facts")
    )
    assert name and layout and what and opened
    assert layout["x"] + layout["width"] <= what["x"] and abs(name["y"] - what["y"]) < 2 < layout["y"] - name["y"]
    assert opened["width"] > name["width"] + what["width"] and opened["y"] > layout["y"] + 10
    beside = """tables => tables.map(table => table.querySelector("tbody tr").children).filter(cells =>
      cells[1].getBoundingClientRect().left < cells[0].getBoundingClientRect().right - 1).length"""
    tables = page.locator(".wide-table:visible, .identity-table")
    assert tables.count() > 5 and tables.evaluate_all(beside) == 0
    assert page.locator("table").evaluate_all("all => all.every(e => e.getBoundingClientRect().right <= innerWidth)")


def test_a_list_that_begins_scrolled_has_a_whole_entry_under_its_title(open_page: Open, committed: str) -> None:
    page = open_page("/quirks/grouped-query/", of=committed, height=500)
    shown = page.locator(".md-sidebar--primary .md-sidebar__scrollwrap")
    page.wait_for_function("list => list.scrollTop > 0", arg=shown.element_handle())
    cut = """list => {
      const title = list.querySelector(".md-nav--lifted > .md-nav__list > .md-nav__item--active > .md-nav__link")
      const end = title.getBoundingClientRect().bottom
      return [...list.querySelectorAll("[data-md-level='1'] .md-nav__link")].map(link => link.getBoundingClientRect())
        .filter(box => box.top < end - 1 && box.bottom > end + 1).length
    }"""
    assert shown.evaluate(cut) == 0


def test_dark_mode_follows_the_system_and_the_toggle(open_page: Open) -> None:
    page = open_page("/gemma4_text/", color_scheme="dark")
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    background = "getComputedStyle(document.body).backgroundColor"
    assert sum(map(int, page.evaluate(background)[4:-1].split(","))) < 120
    page.locator("label[for=__palette_1]").click()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "default")
    assert sum(map(int, page.evaluate(background)[4:-1].split(","))) > 700


def test_colors_switch_at_once_and_scrollbars_with_them(open_page: Open) -> None:
    """The theme marks the page while its colors switch, so that none of them fades; none does as it starts."""
    page = open_page("/gemma4_text/")
    scheme = "document.querySelector('meta[name=color-scheme]').content"
    assert page.evaluate(scheme) == "light"
    page.evaluate(
        """() => {
          window.marked = 0
          new MutationObserver(() => { marked += document.body.hasAttribute("data-md-color-switching") })
            .observe(document.body, { attributeFilter: ["data-md-color-switching"] })
        }"""
    )
    page.locator("label[for=__palette_1]").click()  # from the system's mode to light, which it is already
    page.locator("label[for=__palette_2]").click()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    expect(page.locator("body")).not_to_have_attribute("data-md-color-switching", "")
    assert page.evaluate("marked") == 1
    assert page.evaluate(scheme) == "dark"
    page.reload()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    assert page.evaluate(scheme) == "dark"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_style_sheets_are_read_once(open_page: Open, scheme: str) -> None:
    """The theme would have each read again as it starts, and every element styled again."""
    page = open_page("/gemma4_text/", color_scheme=scheme)
    page.add_init_script(
        """new MutationObserver(() => { if (document.body) window.sheets ??= [...document.styleSheets] })
            .observe(document, { childList: true, subtree: true })"""
    )
    page.reload()
    same = "[...document.styleSheets].filter(sheet => sheet.href).every(sheet => sheets.includes(sheet))"
    schemes = "Array.from(document.querySelectorAll('meta[name=color-scheme]'), meta => meta.content)"
    for _ in range(2):
        page.wait_for_selector("[data-name=text] a.part[aria-pressed]")
        assert page.evaluate("document.styleSheets.length") >= 3 and page.evaluate(same)
        assert page.evaluate(schemes) == [scheme]
        page.locator(".selector a", has_text="26B-A4B").click()
        page.wait_for_url("**/google--gemma-4-26B-A4B/")
        expect(page.locator(".hero .standing")).to_contain_text("gemma-4-26B-A4B")


def test_instant_navigation_keeps_the_figure_alive(open_page: Open) -> None:
    page = open_page("/gemma4_text/")
    page.evaluate("window.stayed = true")
    page.locator(".selector a", has_text="26B-A4B").click()
    page.wait_for_url("**/google--gemma-4-26B-A4B/")
    expect(page.locator(".hero .standing")).to_contain_text("gemma-4-26B-A4B")
    assert page.evaluate("window.stayed") is True, "the page was reloaded"
    page.wait_for_selector("[data-name=text] a.part[aria-pressed]")
    page.locator("[data-name=text] svg.wide a.part[aria-label^='router_logits,']").first.click()
    expect(page.locator("[data-name=text] .pane-card h3")).to_have_text("router_logits")
    assert page.evaluate("window.stayed") is True
    page.go_back()
    expect(page.locator(".hero .standing")).to_contain_text("gemma-4-E2B-it")
    page.wait_for_selector("[data-name=text] a.part[aria-pressed]")


def test_a_chip_opens_its_measurement_and_closes_again(open_page: Open) -> None:
    page = open_page("/gemma4_text/")
    chips = page.locator(".hero .quirk")
    assert chips.count() == 7
    first, second = chips.nth(0), chips.nth(1)
    first.locator("summary").click()
    expect(first.locator(".quirk-card")).to_contain_text("every block")
    expect(first.locator(".quirk-card")).to_contain_text("3e-7")
    second.locator("summary").click()
    expect(first.locator(".quirk-card")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(second.locator(".quirk-card")).to_be_hidden()
    second.locator("summary").press("Enter")
    expect(second.locator(".quirk-card")).to_be_visible()
    page.locator("h1").click()
    expect(second.locator(".quirk-card")).to_be_hidden()


def test_the_printout_folds(open_page: Open) -> None:
    page = open_page("/gemma4_text/")
    shut = page.locator(".listing details:not([open])")
    assert shut.count() > 5
    page.locator("[data-fold=open]").click()
    assert shut.count() == 0
    page.locator("[data-fold=shut]").click()
    assert page.locator(".listing details[open]").count() == 1


@pytest.mark.parametrize("width", [360, 1440])
def test_without_scripts_the_page_is_whole(open_page: Open, width: int) -> None:
    page = open_page("/gemma4_text/", width, java_script_enabled=False)
    layout = "narrow" if width == 360 else "wide"
    assert page.locator(f"[data-name=text] svg.{layout}:visible").count() == 4
    expect(page.locator("[data-name=text] .shape figcaption").first).to_be_visible()
    expect(page.locator("#text-slider")).to_be_hidden()
    page.locator(f"[data-name=text] svg.{layout} a.part[aria-label^='attention_keys,']").first.click()
    expect(page.locator("#v-layers-self_attn-attention_keys")).to_be_in_viewport()
    page.locator("#v-layers-self_attn-attention_keys summary").click()
    expect(page.locator("#v-layers-self_attn-attention_keys .card-facts")).to_contain_text("get_submodule")
    page.locator(".selector a", has_text="26B-A4B").click()
    expect(page.locator(".hero .standing")).to_contain_text("26B-A4B")


def test_print_shows_the_drawings_and_no_controls(open_page: Open) -> None:
    page = open_page("/gemma4_text/")
    stop_watching(page)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("[data-name=text] svg.wide:visible").count() == 4
    expect(page.locator(".hero .quirk-card").first).to_be_visible()
    for hidden in (".md-header", "#text-slider", ".md-sidebar--secondary", "[data-name=text] .pane"):
        expect(page.locator(hidden).first).to_be_hidden()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    expect(page.locator(".hero .quirk-card").first).to_be_hidden()


def test_reduced_motion_moves_nothing(open_page: Open) -> None:
    page = open_page("/gemma4_text/", reduced_motion="reduce")
    moving = page.evaluate(
        """[...document.querySelectorAll(".md-content *")]
          .filter(e => getComputedStyle(e).transitionDuration !== "0s").length"""
    )
    assert moving == 0
