"""The recipes in the cards: one form at a time, the choice remembered, copied as it stands, whole without a script."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Locator, Page, expect

Open = Callable[..., Page]
ROW = "#v-layers-self_attn-attention_output"
FORMS = ("names", "nnsight", "pytorch")


def opened(page: Page) -> Locator:
    page.locator(f"{ROW} summary").click()
    recipe = page.locator(f"{ROW} .recipe").first
    expect(recipe.locator(".forms button")).to_have_text(["this project", "nnsight", "PyTorch", "copy"])
    return recipe


def shows(recipe: Locator, form: str) -> None:
    for each in FORMS:
        expect(recipe.locator(f"[data-form={each}]")).to_be_visible(visible=each == form)
    expect(recipe.locator(f"[data-choose={form}]")).to_have_attribute("aria-pressed", "true")


def test_the_chosen_form_is_shown_everywhere_and_after_a_reload(open_page: Open) -> None:
    page = open_page("/llama/")
    recipe = opened(page)
    shows(recipe, "names")
    recipe.locator("[data-choose=pytorch]").click()
    shows(recipe, "pytorch")
    page.goto(page.url.partition("#")[0] + "#block-0.v-layers-self_attn-attention_keys")
    shows(page.locator(".pane-card .recipe").first, "pytorch")
    page.reload()
    shows(opened(page), "pytorch")


def test_the_copy_is_what_is_shown(open_page: Open) -> None:
    page = open_page("/llama/", permissions=["clipboard-read", "clipboard-write"])
    recipe = opened(page)
    recipe.locator("[data-choose=nnsight]").click()
    recipe.locator("[data-copy]").click()
    expect(recipe.locator("[data-copy]")).to_have_text("copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    shown = recipe.locator("[data-form=nnsight] code").all_text_contents()
    assert copied == "\n\n".join(shown) + "\n" and len(shown) == 2
    assert "model.model.language_model.layers[0].self_attn.output" in copied and "+= vector" in copied


def test_without_a_script_every_form_is_text(open_page: Open) -> None:
    page = open_page("/llama/", java_script_enabled=False)
    page.locator(f"{ROW} summary").click()
    for form in FORMS:
        expect(page.locator(f"{ROW} [data-form={form}]")).to_be_visible()
    assert page.locator(f"{ROW} .forms").count() == 0
