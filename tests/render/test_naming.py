"""Native names: the whole place on a row, the part below the block in a diagram."""

from __future__ import annotations

import pytest

from probe.render.diagram.canvas import _fitting
from probe.render.naming import in_block, native
from probe.schema import HfPath


@pytest.mark.parametrize(
    ("path", "side", "element", "whole", "short"),
    [
        ("model.layers.{i}.mlp", "out", None, ("model.layers.{i}.mlp", "output"), ("mlp", "out")),
        ("model.layers.{i}", "in", None, ("model.layers.{i}", "input"), ("block", "in")),
        ("h.{i}.attn", "out", 1, ("h.{i}.attn", "output 1"), ("attn", "out 1")),
        ("h.{i}.attn", "op", "softmax_0", ("h.{i}.attn", "operation softmax_0"), ("attn", "softmax_0")),
        ("", "in", "input_ids", ("the model", "input input_ids"), ("the model", "in input_ids")),
        ("lm_head", "out", None, ("lm_head", "output"), ("lm_head", "out")),
    ],
)
def test_a_place_is_told_whole_and_short(
    path: str, side: str, element: str | int | None, whole: tuple[str, str], short: tuple[str, str]
) -> None:
    place = HfPath.model_validate({"path": path, "side": side, "element": element})
    assert native(place) == whole
    assert in_block(place) == short


def test_nothing_is_told_of_no_place() -> None:
    assert native(None) is None and in_block(None) is None


def test_a_long_name_keeps_its_end() -> None:
    assert _fitting("mlp.down_proj", 120) == "mlp.down_proj"
    assert _fitting("post_feedforward_layernorm", 91) == "…ward_layernorm"
