"""A byte-level tokenizer of our own, so that a twin reads text and images without a download.

Vocabulary: special tokens below 64 (those a family's processor needs, the rest reserved), then the 256 bytes. A text's
tokens are its UTF-8 bytes after a beginning-of-sequence token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, EOS, BOS, UNK = 0, 1, 2, 3

SPECIAL = {
    "<pad>": PAD,
    "<eos>": EOS,
    "<bos>": BOS,
    "<unk>": UNK,
    "<image>": 4,
    "<image_patch>": 5,
    "<image_start>": 6,
    "<image_end>": 7,
    "<|video|>": 8,
    "<audio>": 9,
    "<audio_start>": 10,
    "<audio_end>": 11,
    "<|image|>": 12,
    "<|image_start|>": 13,
    "<|image_end|>": 14,
    "<|patch|>": 15,
    "<|tile_x_separator|>": 16,
    "<|tile_y_separator|>": 17,
}
FIRST_BYTE = 64
VOCAB_SIZE = FIRST_BYTE + 256

IMAGE = "<image>"
"""Stands for one image in a prompt, on every twin."""

_ROLES: dict[str, dict[str, str]] = {
    "gemma4": {
        "image_token": IMAGE,
        "boi_token": "<image_start>",
        "eoi_token": "<image_end>",
        "audio_token": "<audio>",
        "boa_token": "<audio_start>",
        "eoa_token": "<audio_end>",
    },
    "gemma3": {"image_token": "<image_patch>", "boi_token": IMAGE, "eoi_token": "<image_end>"},
    "llama4": {"image_token": "<|patch|>", "boi_token": "<|image_start|>", "eoi_token": "<|image_end|>"},
    **dict.fromkeys(
        ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "kimi_k25", "llava"),
        {
            "image_token": IMAGE,
            "video_token": "<|video|>",
            "vision_start_token": "<image_start>",
            "vision_end_token": "<image_end>",
        },
    ),
}
"""A wrapper's model_type -> the roles its processor looks up on the tokenizer."""

SEEING = frozenset(_ROLES)
"""The wrappers whose images a twin can read."""

WRAPPERS = frozenset({"gemma4", "gemma3", "llama4"})
"""Those of them whose vision encoder has standard names."""


def config_ids(model_type: str | None) -> dict[str, int]:
    """Token ids for a wrapper's config, under every key a published config uses for them."""
    roles = _ROLES.get(model_type or "", {})
    ids = {role.removesuffix("_token"): SPECIAL[token] for role, token in roles.items()}
    found = {f"{role}_token_{end}": token for role, token in ids.items() for end in ("id", "index")}
    sequence = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
    return {**found, **sequence, "video_token_id": SPECIAL["<|video|>"]}


def tokenizer(model_type: str | None = None) -> PreTrainedTokenizerFast:
    """The tokenizer, with the roles a wrapper's processor needs.

    Args:
        model_type: the wrapper's model_type; None for a text model.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    spelled = _byte_letters()
    vocab = {**SPECIAL, **{f"<reserved_{i}>": i for i in range(len(SPECIAL), FIRST_BYTE)}}
    vocab.update({spelled[byte]: FIRST_BYTE + byte for byte in range(256)})
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", BOS)]
    )
    backend.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    roles = _ROLES.get(model_type or "", {})
    extra: dict[str, Any] = {"extra_special_tokens": roles} if roles else {}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        unk_token="<unk>",
        padding_side="left",
        **extra,
    )


def _byte_letters() -> dict[int, str]:
    """The printable letter by which byte-level tokenizers spell each byte."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return bytes_to_unicode()
