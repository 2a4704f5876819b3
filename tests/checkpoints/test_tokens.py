"""The byte-level tokenizer: every text comes back, and its ids are those of the twins' configs."""

from __future__ import annotations

from typing import Any

import pytest

from probe import registry
from probe.checkpoints import tokens, twins

TEXTS = ["The Eiffel Tower", "  two  spaces\n\ttab ", "héllo 世界 🙂", "", "\x00\x7f", "<image"]


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back(text: str) -> None:
    tokenizer = tokens.tokenizer()
    ids = tokenizer(text)["input_ids"]
    assert ids == [tokens.BOS, *(tokens.FIRST_BYTE + byte for byte in text.encode())]
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_vocabulary_is_as_large_as_the_twins_embeddings() -> None:
    tokenizer = tokens.tokenizer("gemma4")
    assert len(tokenizer) == tokens.VOCAB_SIZE == max(tokenizer.get_vocab().values()) + 1


def test_padding_is_on_the_left_and_masked() -> None:
    batch = tokens.tokenizer()(["ab", "abcd"], padding=True)
    assert batch["input_ids"][0][:2] == [tokens.PAD, tokens.PAD] and batch["attention_mask"][0] == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("family", registry.modules())
def test_ids_agree_with_the_configs(family: str, twin: Any) -> None:
    for name in registry.get(family).twins:
        config, tokenizer = twins.build_config(family, name), twin(family, name).tokenizer
        text = config.get_text_config()
        assert (text.bos_token_id, text.eos_token_id, text.pad_token_id) == (
            tokenizer.bos_token_id,
            tokenizer.eos_token_id,
            tokenizer.pad_token_id,
        )
        if (image := getattr(config, "image_token_id", None)) is not None:
            assert image == tokenizer.image_token_id
        for key, value in config.to_dict().items():
            if key.endswith(("_token_id", "_token_index")) and isinstance(value, int):
                assert value < tokens.VOCAB_SIZE, key
