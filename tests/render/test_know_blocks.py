"""What to know of the kinds of blocks, of the machinery in them, and of what enters them."""

from __future__ import annotations

from probe.render.standing import Standing
from probe.schema import Images, Row, Station
from tests.render.knowing import changed, committed, plain


def test_modules_that_all_kinds_of_blocks_share_are_told_once() -> None:
    text = plain(committed("gemma3_text", "tiny"), "know-blocks")
    assert text.count("Gemma3Attention") == 1 and "all made of" in text
    assert "per_layer_output of the block itself" in plain(committed("gemma4_text", "tiny"), "know-blocks")
    assert plain(committed("kimi_k2", "tiny"), "know-blocks").count("made of") == 2


def test_a_number_of_the_twins_size_is_the_twins() -> None:
    assert "On the twin, whose queries are 20 wide, scores are" in plain(
        committed("kimi_k2", "moonshotai--Kimi-K2.5"), "know-machinery"
    )
    assert "On the twin" not in plain(committed("kimi_k2", "tiny"), "know-machinery")
    assert "In the twin's run noise" in plain(committed("kimi_k2", "moonshotai--Kimi-K2.5"), "know-adding")


def test_a_mixer_beside_an_attention_is_not_said_to_stand_for_it() -> None:
    assert "and by an attention too" in plain(committed("falcon_h1", "tiny"), "know-machinery")
    assert "and not by attention" in plain(committed("mamba2", "tiny"), "know-machinery")


def test_what_the_stream_takes_at_the_tokens_of_an_image_is_told() -> None:
    seen = "At the tokens of an image block 0 takes"
    assert f"{seen} vision.image_features" in plain(committed("gemma3_text", "tiny-vision"), "know-entrance")
    assert seen not in plain(committed("gemma3_text", "tiny"), "know-entrance")
    about = {"module": "Module", "side": "out", "element": "output", "shape": [1], "edits": True, "logits": 1.0}
    stations = [Station(path="join", enters=[-1], **about), Station(path="mergers.{i}", enters=[0, 1], **about)]
    page = changed(committed("llama", "tiny"), images=Images.model_construct(stations=stations))
    text = plain(page, "know-entrance")
    assert f"{seen} what join returns in place of the token's embedding." in text
    assert "What mergers.{i} gives is added to the stream at these tokens after blocks 0–1 of the 3, one each." in text


def test_the_blocks_of_an_encoder_that_are_read_are_told_as_the_checkpoint_has_them() -> None:
    page = committed("qwen3_vl_text", "Qwen--Qwen3-VL-2B-Instruct")
    assert page.twin is not None
    name = "vision_config.deepstack_visual_indexes"
    own, behind = ({"vision_config": [Row(name=name, value=value)]} for value in ([5, 11, 17], [0, 1, 2]))
    told = Standing(page.record.model_copy(update=own), page.twin.model_copy(update=behind), page.twin_uri, "../")
    assert f"one each. Here {name} has 5, 11 and 17." in plain(told, "know-entrance")
