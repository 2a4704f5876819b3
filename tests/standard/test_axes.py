"""How a model holds a value: axes swapped, folded, or with one more of size 1."""

from __future__ import annotations

import pytest
import torch

from probe.values.axes import Axes, forms
from probe.values.layouts import LAYOUTS

DIMS = LAYOUTS["Keys"].dims
SIZES = {"batch": 2, "num_kv_heads": 3, "seq": 5, "qk_head_dim": 7}
VALUE = torch.arange(210.0).reshape(2, 3, 5, 7)


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("batch num_kv_heads seq qk_head_dim", VALUE),
        ("(batch num_kv_heads) qk_head_dim seq", VALUE.flatten(0, 1).transpose(1, 2)),
        ("batch seq (num_kv_heads qk_head_dim)", VALUE.transpose(1, 2).flatten(2)),
        ("batch seq num_kv_heads 1 qk_head_dim", VALUE.transpose(1, 2)[:, :, :, None]),
        ("(batch seq) (num_kv_heads qk_head_dim)", VALUE.transpose(1, 2).flatten(2).flatten(0, 1)),
    ],
)
def test_a_value_is_viewed_and_folded_back(text: str, held: torch.Tensor) -> None:
    axes = Axes.parse(text, DIMS)
    assert str(axes) == text
    assert torch.equal(axes.view(held, SIZES), VALUE)
    assert torch.equal(axes.fold(VALUE, held.shape), held)
    names = {**SIZES, "tensor": held}
    assert torch.equal(eval(axes.expression(), {"__builtins__": {}}, names), VALUE)  # the expression that a page shows


def test_a_view_shares_its_memory() -> None:
    held = VALUE.flatten(0, 1).transpose(1, 2).contiguous()
    view = Axes.parse("(batch num_kv_heads) qk_head_dim seq", DIMS).view(held, SIZES)
    view[0, 0, 0, 0] = -1.0
    assert held[0, 0, 0] == -1.0


def test_every_form_is_tried_once_and_the_plainest_first() -> None:
    every = forms(DIMS)
    assert every[0].plain
    assert len(set(every)) == len(every)


@pytest.mark.parametrize("text", ["batch seq", "batch num_kv_heads seq head_dim", "batch batch seq qk_head_dim"])
def test_other_axes_than_the_layouts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="does not hold the axes"):
        Axes.parse(text, DIMS)


@pytest.mark.parametrize("shape", [(6, 7), (5, 7, 5)])
def test_a_tensor_that_does_not_fold_so_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="does not fold"):
        Axes.parse("(batch num_kv_heads) qk_head_dim seq", DIMS).view(torch.zeros(shape), SIZES)
