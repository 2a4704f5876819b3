"""Other names of a value: whole on a row, on two short lines in a diagram."""

from __future__ import annotations

import pytest

from probe.render.diagram.canvas import PAD, SIDE, SMALL, Label, width_of
from probe.render.naming import LONGEST, in_block, lines, native, shortened, tool_lines
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


@pytest.mark.parametrize(
    ("path", "side", "element", "module", "shown"),
    [
        ("h.{i}.mlp.c_proj", "in", None, "mlp", ("c_proj", "input")),
        ("h.{i}.mlp.c_proj", "out", 0, "", ("mlp.c_proj", "output 0")),
        ("h.{i}", "in", None, "", ("block", "input")),
        ("h.{i}.attn", "op", "attention_interface_1 inputs[0][2]", "attn", ("attention_interface_1", "inputs[0][2]")),
        ("h.{i}.attn", "op", "scan_0 > run_0 > dt_2 output", "attn", ("dt_2", "output")),
        ("h.{i}.block_sparse_moe.shared_experts.act_fn", "out", None, "", ("…shared_experts.act_fn", "output")),
    ],
)
def test_a_chip_has_the_end_of_a_place_and_then_its_side(
    path: str, side: str, element: str | int | None, module: str, shown: tuple[str, str]
) -> None:
    assert lines(HfPath.model_validate({"path": path, "side": side, "element": element}), module) == shown


def test_another_tools_name_stands_below_the_block_with_what_tells_its_tensor_apart() -> None:
    assert tool_lines(("blocks.{i}.attn.hook_pattern", "")) == ("attn.hook_pattern", "")
    assert tool_lines(("blocks.{i}.hook_mlp_in", "another tensor")) == ("hook_mlp_in", "another tensor")


def test_a_long_name_keeps_its_end_by_whole_parts_where_one_fits() -> None:
    assert shortened("mlp.down_proj") == "mlp.down_proj"
    assert shortened("shared_experts.down_proj", 14) == "…down_proj"
    assert shortened("…shared_experts.down_proj", 14) == "…down_proj"
    assert shortened("post_feedforward_layernorm", 15) == "…ward_layernorm"


def test_a_chip_has_room_for_the_longest_of_its_names_and_no_more_than_it_may_take() -> None:
    label = Label("layer_mid", "", "stream", names={"native": ("n" * LONGEST, "input")})
    assert label.width == width_of("n" * LONGEST, SMALL) + 2 * SIDE
    assert label.written(label.names["native"]) == "n" * LONGEST + "|input"
    narrow = Label("layer_mid", "", "stream", names={"native": ("post_attention_layernorm", "")}, most=100)
    assert narrow.width == 100 and width_of(narrow.written(narrow.names["native"]), SMALL) <= 100 - 2 * SIDE
    assert Label("layer_mid", "", "stream").width == width_of("layer_mid") + 2 * PAD
