"""The positions behind an image, and why no image was read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from probe.experiments.rotary.image_positions import image_positions

RunOf = Callable[..., Any]


@pytest.mark.parametrize(
    ("family", "why"),
    [
        (
            "inkling_text",
            "`InklingForCausalLM` is a text model alone, which `InklingConfig` joins with a vision encoder.",
        ),
        ("phi4_multimodal", "`Phi4MultimodalForCausalLM` has a vision encoder, and nothing here makes its inputs"),
    ],
)
def test_a_family_of_images_tells_why_none_was_read(run_of: RunOf, family: str, why: str) -> None:
    [fact] = image_positions(run_of(family))
    assert fact.name == "image_read" and fact.value is False and why in fact.statement


def test_a_model_of_text_tells_nothing_of_images(run_of: RunOf) -> None:
    assert image_positions(run_of("llama")) == []


def test_the_text_behind_an_image_goes_on_behind_its_rows_and_columns(run_of: RunOf) -> None:
    [fact] = image_positions(run_of("qwen2_vl_text"))
    places, place, position = (fact.measured[key] for key in ("tokens", "place", "position"))
    assert fact.value == place - position > 0 and position < places
