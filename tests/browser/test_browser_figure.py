"""The figure of a block under mouse, keyboard and touch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

Open = Callable[..., Page]
E2B = "/gemma4_text/"
MIXTURE = "/gemma4_text/google--gemma-4-26B-A4B/"
SCOUT = "/llama4_text/"
MAVERICK = "/llama4_text/meta-llama--Llama-4-Maverick-17B-128E-Instruct-FP8/"
PARTS = ".shape.is-current svg.{} a.part"
TITLE = "[data-name={}] .pane-card:not([hidden]) h3"


def part(page: Page, name: str, figure: str = "text") -> object:
    return page.locator(f"[data-name={figure}] .shape.is-current svg.wide a.part[aria-label^='{name},']").first


def set_block(page: Page, index: int, figure: str = "text") -> None:
    page.locator(f"#{figure}-slider").evaluate(
        "(slider, i) => { slider.value = i; slider.dispatchEvent(new Event('input', { bubbles: true })) }", index
    )


def point_at(page: Page, link: object) -> None:
    """Moves the mouse onto a spot of the part that nothing covers."""
    spot = link.evaluate(  # type: ignore[attr-defined]
        """link => {
          link.scrollIntoView({ block: "center" })
          for (const shape of link.querySelectorAll("rect, circle")) {
            const box = shape.getBoundingClientRect()
            for (const fx of [.5, .06, .94, .3]) for (const fy of [.5, .12, .9, .3]) {
              const [x, y] = [box.left + box.width * fx, box.top + box.height * fy]
              if (document.elementFromPoint(x, y)?.closest("a.part") === link) return [x, y]
            }
          }
        }"""
    )
    assert spot, "the part is covered"
    page.mouse.move(*spot)


@pytest.mark.parametrize(
    ("path", "figure"), [(E2B, "text"), (E2B, "vision"), (MIXTURE, "text"), (SCOUT, "text"), (SCOUT, "vision")]
)
def test_every_part_answers_to_the_mouse_and_the_keyboard(open_page: Open, path: str, figure: str) -> None:
    page = open_page(path, height=1200)
    root = page.locator(f"[data-name={figure}]")
    title = page.locator(TITLE.format(figure))
    links = root.locator(PARTS.format("wide"))
    assert links.count() > 15
    for k in range(links.count()):
        link = links.nth(k)
        name = (link.get_attribute("aria-label") or "").partition(",")[0]
        point_at(page, link)
        expect(title).to_have_text(name)
        assert root.locator(".pane-card .card-facts > div").count() > 0
        page.mouse.move(5, 5)
        link.focus()
        expect(title).to_have_text(name)
        page.keyboard.press("Enter")
        expect(link).to_have_attribute("aria-pressed", "true")
        page.keyboard.press("Escape")
        expect(link).to_have_attribute("aria-pressed", "false")
        expect(title).to_have_count(0)


def test_the_card_of_a_value_says_all_that_is_known(open_page: Open) -> None:
    page = open_page(E2B)
    point_at(page, part(page, "attention_scores"))
    card = page.locator("[data-name=text] .pane-card")
    for text in (
        "attention_scores",
        "model.layers[0].self_attn",
        "Pattern",
        "[batch, 8, query, key]",
        "attn_implementation='eager'",
        'get_submodule("model.language_model.layers.{i}.self_attn")',
        "nn_functional_softmax_0",
        "moved a logit by 0.4 on tiny",
        "not run on this checkpoint; run on its twin tiny",
        "transformers 5.24.0",
    ):
        expect(card).to_contain_text(text)


def test_a_click_pins_another_unpins_and_escape_lets_go(open_page: Open) -> None:
    page = open_page(E2B)
    keys, queries = part(page, "attention_keys"), part(page, "attention_queries")
    title = page.locator(TITLE.format("text"))
    keys.click()
    point_at(page, queries)
    expect(title).to_have_text("attention_keys")
    queries.click()
    expect(title).to_have_text("attention_queries")
    expect(keys).to_have_attribute("aria-pressed", "false")
    queries.click()
    expect(queries).to_have_attribute("aria-pressed", "false")
    keys.click()
    page.locator("[data-name=text] [data-close]").click()
    expect(title).to_have_count(0)
    keys.click()
    page.keyboard.press("Escape")
    expect(title).to_have_count(0)


def test_the_slider_swaps_the_shape_and_what_it_says(open_page: Open) -> None:
    page = open_page(E2B)
    figure = page.locator("[data-name=text]")
    slider = page.locator("#text-slider")
    current = figure.locator(".shape.is-current")
    expect(current).to_have_attribute("data-label", "sliding attention · own keys and values")
    slider.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    expect(figure.locator("[data-index]")).to_have_text("4")
    expect(figure.locator("[data-which]")).to_have_text("full attention · own keys and values")
    expect(slider).to_have_attribute("aria-valuetext", "block 4: full attention · own keys and values")
    expect(figure.locator(".block-card .differs dd").first).to_have_text("512")
    page.keyboard.press("End")
    expect(figure.locator("[data-index]")).to_have_text("34")
    expect(figure.locator("[data-which]")).to_have_text("full attention · borrowed keys and values")
    expect(current.locator("svg.wide")).to_contain_text("12,288 wide")
    assert figure.locator(".shape:visible").count() == 1
    assert figure.locator(".shape[inert]").count() == 3
    part(page, "attention_keys").click()
    expect(figure.locator(".pane-card")).to_contain_text("[batch, 1, seq, 512]")
    set_block(page, 0)
    expect(figure.locator(".pane-card")).to_contain_text("[batch, 1, seq, 256]")


def test_a_click_on_a_tick_picks_its_block(open_page: Open) -> None:
    page = open_page(SCOUT)
    ticks = page.locator("[data-name=text] .ticks i")
    assert ticks.count() == 48
    page.locator("[data-name=text] .track").evaluate("track => track.scrollIntoView({ block: 'center' })")
    for index in (0, 3, 20, 47):
        box = ticks.nth(index).bounding_box()
        assert box
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        expect(page.locator("[data-name=text] [data-index]")).to_have_text(str(index))
    assert len({ticks.nth(i).evaluate("t => getComputedStyle(t).backgroundColor") for i in (2, 3)}) == 2


def test_a_pinned_value_that_the_block_lacks_is_said_to_be_missing(open_page: Open) -> None:
    page = open_page(MAVERICK)
    set_block(page, 1)
    part(page, "router_logits").click()
    set_block(page, 0)
    expect(page.locator("[data-name=text] .pane-card .missing")).to_have_text("not on block 0")


def test_arrows_walk_the_parts(open_page: Open) -> None:
    page = open_page(E2B)
    focused = "document.activeElement.getAttribute('aria-label')?.split(',')[0]"
    part(page, "attention_queries").focus()
    seen = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft", "Home", "End"):
        page.keyboard.press(key)
        seen.append(page.evaluate(focused))
    assert seen[:4] == ["attention_keys", "attention_values", "attention_head_outputs", "attention_premix"]
    assert len(set(seen)) == len(seen)


def test_tab_reaches_slider_and_parts_of_the_shown_shape_only(open_page: Open) -> None:
    page = open_page(E2B)
    page.locator("#text-slider").focus()
    page.keyboard.press("Tab")
    expect(page.locator("[data-name=text] .naming input:checked")).to_be_focused()
    names = []
    for _ in range(60):
        page.keyboard.press("Tab")
        inside = page.evaluate("Boolean(document.activeElement.closest('[data-name=text] .bench'))")
        if not inside:
            break
        names.append(page.evaluate("document.activeElement.closest('.shape')?.dataset.shape ?? 'pane'"))
    expected = page.locator("[data-name=text] " + PARTS.format("wide")).count()
    assert names.count("0") == expected
    assert set(names) <= {"0", "pane"}


def test_hover_to_card_takes_less_than_50_ms(open_page: Open) -> None:
    """To the card laid out; the best of three passes a part, since other work on the machine is no part of it."""
    page = open_page(E2B)
    point_at(page, part(page, "layer_mid"))
    took = page.evaluate(
        """async () => {
          const links = [...document.querySelectorAll("[data-name=text] .shape.is-current svg.wide a.part")]
          const title = () => document.querySelector("[data-name=text] .pane-card h3")?.textContent
          const took = links.map(() => Infinity)
          for (let pass = 0; pass < 3; pass++) {
            for (const [k, link] of links.entries()) {
              const start = performance.now()
              link.dispatchEvent(new PointerEvent("pointerover", { bubbles: true, pointerType: "mouse" }))
              const name = link.getAttribute("aria-label").split(",")[0]
              if (title() !== name) throw new Error(name)
              document.querySelector("[data-name=text] .pane").getBoundingClientRect()
              took[k] = Math.min(took[k], performance.now() - start)
            }
          }
          return took
        }"""
    )
    assert len(took) > 20 and max(took) < 50, max(took)


@pytest.mark.parametrize(
    ("hash", "figure", "index", "title"),
    [
        ("#block-14", "text", "14", None),
        ("#block-20.v-layers-self_attn-attention_keys", "text", "20", "attention_keys"),
        ("#vision-block-3.v-vision-layers-mlp-mlp_neurons", "vision", "3", "mlp_neurons"),
    ],
)
def test_deep_links(open_page: Open, hash: str, figure: str, index: str, title: str | None) -> None:
    page = open_page(E2B + hash)
    expect(page.locator(f"[data-name={figure}] [data-index]")).to_have_text(index)
    if title:
        expect(page.locator(TITLE.format(figure))).to_have_text(title)
        expect(page.locator(f"[data-name={figure}] .bench")).to_be_in_viewport()


def test_what_is_pinned_is_in_the_address(open_page: Open) -> None:
    page = open_page(E2B)
    set_block(page, 9)
    part(page, "mlp_neurons").click()
    page.wait_for_function("location.hash === '#block-9.v-layers-mlp-mlp_neurons'")
    page.keyboard.press("Escape")
    page.wait_for_function("location.hash === '#block-9'")


def test_rows_and_diagram_lead_to_each_other(open_page: Open) -> None:
    page = open_page(E2B)
    part(page, "mlp_neurons").click()
    page.locator("[data-name=text] .pane-foot a").click()
    row = page.locator("#v-layers-mlp-mlp_neurons")
    expect(row).to_be_in_viewport()
    page.locator("#v-layers-self_attn-attention_keys .show").click()
    expect(page.locator(TITLE.format("text"))).to_have_text("attention_keys")
    expect(page.locator("[data-name=text] .bench")).to_be_in_viewport()


def test_an_address_that_a_link_sets_at_once_is_kept(open_page: Open) -> None:
    """A pinned part goes into the address a moment later, by when a link may have set another."""
    page = open_page(E2B)
    page.evaluate(
        """() => {
          const shape = document.querySelector("[data-name=text] .shape.is-current")
          const part = shape.querySelector("svg.wide a.part[aria-label^='mlp_neurons,']")
          part.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }))
          document.querySelector("[data-name=text] .pane-foot a").click()
        }"""
    )
    page.wait_for_timeout(400)
    assert page.evaluate("location.hash") == "#v-layers-mlp-mlp_neurons"
    expect(page.locator("#v-layers-mlp-mlp_neurons")).to_be_in_viewport()


def test_a_tap_pins_and_the_card_stays_on_the_screen(open_page: Open) -> None:
    page = open_page(E2B, 360, 740, has_touch=True, is_mobile=True)
    link = page.locator("[data-name=text] .shape.is-current svg.narrow a.part[aria-label^='attention_keys,']")
    link.scroll_into_view_if_needed()
    link.tap()
    pane = page.locator("[data-name=text] .pane")
    expect(page.locator(TITLE.format("text"))).to_have_text("attention_keys")
    box = pane.bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] <= 360 and box["height"] < 740 * 0.6
    part_box = link.bounding_box()
    assert part_box and part_box["y"] + part_box["height"] <= box["y"], "the card covers what it is about"
    page.locator("[data-name=text] [data-close]").tap()
    expect(pane).to_be_hidden()
