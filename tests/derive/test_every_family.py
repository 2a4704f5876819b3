"""Every twin of every decoder: its block's sum, every value read in its layout's axes, every writable one edited."""

from __future__ import annotations

import pytest

from tests.derive.summaries import summary, twins

TWINS = twins()

SILENT: dict[tuple[str, str], dict[str, str]] = {
    ("cpmant", "tiny"): {"model.attention_mask": "the class makes a mask of its own from the token ids"},
    ("rwkv", "tiny"): {"model.attention_mask": "the class takes the mask and does not use it"},
    ("xlstm", "tiny"): {"model.attention_mask": "the class takes the mask and does not use it"},
}
"""Values whose edit reaches no logit on any block, with the reason."""

ODD: dict[tuple[str, str], dict[str, tuple[set[int], str]]] = {
    ("blt", "tiny"): dict.fromkeys(("seq", "query", "key"), ({20}, "its blocks see 20 patches of the 35 bytes")),
    ("cpmant", "tiny"): dict.fromkeys(
        ("seq", "query", "key"), ({67}, "the model puts 32 prompt positions before the 35 tokens")
    ),
    ("deepseek_v4", "tiny"): dict.fromkeys(
        ("seq", "key"), ({39, 43}, "keys of compressed stretches of the prompt stand beside those of its 35 tokens")
    ),
    ("falcon", "tiny-grouped"): {
        "num_kv_heads": ({6}, "keys are repeated for the queries they serve before they are rotated")
    },
    ("falcon", "tiny-one-norm"): {
        "num_kv_heads": ({6}, "keys are repeated for the queries they serve before they are rotated")
    },
    ("inkling2_text", "tiny"): {"vocab_size": ({300}, "the logits are cut to the vocabulary without its padding")},
    ("inkling2_loop_text", "tiny"): {"vocab_size": ({300}, "the logits are cut to the vocabulary without its padding")},
    ("inkling_text", "tiny"): {"num_experts": ({10}, "the router has a logit for each of 2 shared experts too")},
    ("zaya", "tiny"): {"num_experts": ({9}, "the router has a logit for skipping the experts too")},
    ("zaya", "tiny-sliding"): {"num_experts": ({9}, "the router has a logit for skipping the experts too")},
    ("opt", "tiny-post-norm"): {"hidden_size": ({48}, "the embeddings are narrower than the stream")},
    ("qwen4_exp_text", "tiny"): {"hidden_size": ({384}, "the stream is 4 lanes of 96 side by side")},
}
"""Axes that are not of the size that the prompt, the config or the host gives them, with the reason."""

each = pytest.mark.parametrize(("family", "name"), TWINS, ids=["/".join(twin) for twin in TWINS])


@each
def test_the_sum_holds_on_every_block(family: str, name: str) -> None:
    found = summary(family, name)
    assert found.summed == set(range(found.blocks))


@each
def test_every_readable_value_is_read_in_its_layouts_axes(family: str, name: str) -> None:
    found = summary(family, name)
    assert found.read > 0
    assert found.unread == []
    assert found.misshapen == []
    assert found.odd == {axis: sizes for axis, (sizes, _) in ODD.get((family, name), {}).items()}


@each
def test_every_writable_value_is_edited_and_reaches_the_logits(family: str, name: str) -> None:
    found = summary(family, name)
    assert found.unedited == []
    assert found.silent == set(SILENT.get((family, name), {}))


def test_the_tables_name_twins_that_exist() -> None:
    assert {*SILENT, *ODD} <= set(TWINS)
