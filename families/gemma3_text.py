"""Gemma 3: the published checkpoints, and the tiny twins that stand for their kinds.

270M and 1B are text models; from 4B on a SigLIP encoder feeds the same text model, whose full-attention blocks then
rescale their rotary positions.
"""

from __future__ import annotations

from typing import Any

TITLE = "Gemma 3"

CHECKPOINTS = (
    "google/gemma-3-270m",
    "google/gemma-3-1b-it",
    "google/gemma-3-4b-it",
    "google/gemma-3-27b-it",
    "google/gemma-3-270m-it",
    "google/gemma-3-1b-pt",
    "google/gemma-3-4b-pt",
    "google/gemma-3-12b-pt",
    "google/gemma-3-12b-it",
    "google/gemma-3-27b-pt",
)

TWINS: dict[str, dict[str, Any]] = {
    "tiny": {
        "config": "google__gemma-3-1b-it",
        "text": {
            "hidden_size": 48,
            "intermediate_size": 72,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 8,
            "query_pre_attn_scalar": 8,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "num_hidden_layers": 4,
            "sliding_window": 6,
            "max_position_embeddings": 512,
        },
    },
    "tiny-vision": {
        "config": "google__gemma-3-4b-it",
        "root": {"mm_tokens_per_image": 9},
        "text": {
            "hidden_size": 48,
            "intermediate_size": 72,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "query_pre_attn_scalar": 8,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "num_hidden_layers": 4,
            "sliding_window": 6,
            "max_position_embeddings": 512,
        },
        "vision": {
            "hidden_size": 32,
            "intermediate_size": 72,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "image_size": 24,
            "patch_size": 4,
        },
    },
}
