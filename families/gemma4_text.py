"""Gemma 4: the published checkpoints, and the tiny twins that stand for their kinds.

E2B and E4B have per-layer embeddings, and their last blocks borrow keys and values through a double-wide MLP;
26B-A4B puts a mixture beside the dense MLP; 26B-A4B and 31B use the key projection for the values on the blocks of
full attention. The twins keep those flags and change sizes only.
"""

from __future__ import annotations

from typing import Any

TITLE = "Gemma 4"

CHECKPOINTS = (
    "google/gemma-4-E2B-it",
    "google/gemma-4-E4B-it",
    "google/gemma-4-26B-A4B",
    "google/gemma-4-31B-it",
    "google/gemma-4-E2B",
    "google/gemma-4-E4B",
    "google/gemma-4-26B-A4B-it",
    "google/gemma-4-31B",
)

TWINS: dict[str, dict[str, Any]] = {
    "tiny": {
        "config": "google__gemma-4-E2B-it",
        "part": "text_config",
        "text": {
            "hidden_size": 48,
            "intermediate_size": 56,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 8,
            "global_head_dim": 16,
            "hidden_size_per_layer_input": 12,
            "layer_types": ["sliding_attention", "full_attention"] * 4,
            "num_hidden_layers": 8,
            "num_kv_shared_layers": 4,
            "sliding_window": 6,
            "max_position_embeddings": 512,
        },
    },
    "tiny-vision": {
        "config": "google__gemma-4-E2B-it",
        "root": {"audio_config": None},
        "text": {
            "hidden_size": 48,
            "intermediate_size": 56,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 8,
            "global_head_dim": 16,
            "hidden_size_per_layer_input": 12,
            "layer_types": ["sliding_attention", "full_attention"] * 4,
            "num_hidden_layers": 8,
            "num_kv_shared_layers": 4,
            "sliding_window": 6,
            "max_position_embeddings": 512,
        },
        "vision": {
            "hidden_size": 32,
            "intermediate_size": 72,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "head_dim": 8,
            "global_head_dim": 8,
            "num_hidden_layers": 2,
            "patch_size": 4,
            "position_embedding_size": 24,
        },
        "image": {"max_soft_tokens": 8},
    },
    "tiny-moe": {
        "config": "google__gemma-4-26B-A4B",
        "text": {
            "hidden_size": 48,
            "intermediate_size": 40,
            "moe_intermediate_size": 20,
            "num_experts": 8,
            "top_k_experts": 3,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "num_global_key_value_heads": 2,
            "head_dim": 8,
            "global_head_dim": 16,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "num_hidden_layers": 4,
            "sliding_window": 6,
            "max_position_embeddings": 512,
        },
        "vision": {
            "hidden_size": 32,
            "intermediate_size": 72,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "head_dim": 8,
            "global_head_dim": 8,
            "num_hidden_layers": 2,
            "patch_size": 4,
            "position_embedding_size": 24,
        },
        "image": {"max_soft_tokens": 8},
    },
    "tiny-dense": {
        "config": "google__gemma-4-31B-it",
        "text": {
            "hidden_size": 48,
            "intermediate_size": 56,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "num_global_key_value_heads": 1,
            "head_dim": 8,
            "global_head_dim": 16,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "num_hidden_layers": 4,
            "sliding_window": 6,
            "max_position_embeddings": 512,
        },
        "vision": {
            "hidden_size": 32,
            "intermediate_size": 72,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "head_dim": 8,
            "global_head_dim": 8,
            "num_hidden_layers": 2,
            "patch_size": 4,
            "position_embedding_size": 24,
        },
        "image": {"max_soft_tokens": 8},
    },
}
