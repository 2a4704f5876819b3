"""Reading one value by name, as the command line does."""

from __future__ import annotations

import pytest
import torch

from probe.checkpoints import Target, targets
from probe.errors import ProbeError
from probe.measure import read_value
from probe.measure.edits import unmasked


def _twin(family: str, name: str) -> Target:
    return next(target for target in targets(family) if target.id == name)


def test_a_value_comes_with_its_place_and_its_statistics() -> None:
    reading = read_value(_twin("llama", "tiny"), "attention_premix", layer=1, prompt="Paris")
    assert reading.host == "model.layers[1].self_attn"
    assert reading.location == "o_proj.input"
    assert reading.shape == [1, 6, 6, 8]
    assert reading.stats["min"] < reading.stats["mean"] < reading.stats["max"]


def test_a_value_that_needs_eager_gets_it_unless_another_load_was_asked_for() -> None:
    assert read_value(_twin("llama", "tiny"), "attention_scores").attn == "eager"
    with pytest.raises(ProbeError, match="needs attn_implementation='eager'") as caught:
        read_value(_twin("llama", "tiny"), "attention_scores", attn="sdpa")
    assert caught.value.status != 0


def test_a_towers_value_is_asked_for_with_its_prefix() -> None:
    reading = read_value(_twin("llama4_text", "tiny-vision"), "vision.layer_output", layer=1)
    assert reading.host == "model.vision.layers[1]"
    assert reading.shape == [3, 17, 32]


@pytest.mark.parametrize(
    ("value", "layer", "sentence"),
    [
        ("atention_output", None, "did you mean attention_output"),
        ("layer_output", 9, "has no block 9: it has one on blocks 0 to 2"),
        ("logits", 0, "belongs to the whole model"),
    ],
)
def test_a_wrong_name_or_block_gets_one_sentence(value: str, layer: int | None, sentence: str) -> None:
    with pytest.raises(ProbeError, match=sentence):
        read_value(_twin("llama", "tiny"), value, layer=layer)


@pytest.mark.parametrize(
    ("family", "value", "sentence", "status"),
    [
        ("gpt_neox", "layer_mid", "gpt_neox has no layer_mid. Parallel block: the sublayers of each block", 4),
        ("gpt_neox", "blocks.0.hook_resid_mid", "name for layer_mid, which gpt_neox does not have. Parallel block", 4),
        ("mamba", "resid_mid", "which mamba does not have. Each block adds to the stream once", 4),
        ("llama", "hook_resid_mid", "'hook_resid_mid' is TransformerLens's name for layer_mid: ask for layer_mid", 2),
        ("llama", "layers.0.layer_mid", "ask for layer_mid, and name its block with --layer", 2),
    ],
)
def test_a_run_tells_what_is_asked_for_where_no_record_does(
    family: str, value: str, sentence: str, status: int
) -> None:
    with pytest.raises(ProbeError) as caught:
        read_value(_twin(family, "tiny"), value)
    assert sentence in str(caught.value) and caught.value.status == status


@pytest.mark.parametrize(
    ("prompt", "sentence"),
    [
        ("word " * 3000, r"tiny has \d+ positions and the prompt \d+ tokens; give a shorter one with --prompt"),
        ("a\udcff b", "no text in UTF-8"),
        (" ", "The prompt is empty"),
    ],
)
def test_a_prompt_that_cannot_run_gets_one_sentence(prompt: str, sentence: str) -> None:
    with pytest.raises(ProbeError, match=sentence):
        read_value(_twin("gpt2", "tiny"), "logits", prompt=prompt)


def test_a_mask_is_no_number_in_half_precision_either() -> None:
    whole, half = (read_value(_twin("gpt2", "tiny"), "attention_scores", dtype=d) for d in ("float32", "float16"))
    assert half.stats["min"] == pytest.approx(whole.stats["min"], rel=0.02)
    scores = torch.tensor([[1.0, -2.0], [torch.finfo(torch.float16).min, 3.0]], dtype=torch.float16)
    assert unmasked(scores).tolist() == [1.0, -2.0, 3.0]


def test_a_build_from_a_config_cannot_be_read() -> None:
    target = next(target for target in targets("llama") if target.id == "meta-llama/Llama-3.1-8B")
    with pytest.raises(ProbeError, match="only built from its config"):
        read_value(target, "logits")


def test_a_block_without_a_mixture_says_so() -> None:
    with pytest.raises(ProbeError, match="no mixture of experts"):
        read_value(_twin("gemma4_text", "tiny"), "router_logits", layer=0)
