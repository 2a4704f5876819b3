"""Llama 4: the published checkpoints, and the tiny twins that stand for their kinds.

Every block of Scout is a mixture and norms its queries and keys; Maverick alternates dense and mixture blocks and
norms neither. On both, every fourth block attends over the whole context without rotary, the others within chunks.
"""

from __future__ import annotations

from typing import Any

TITLE = "Llama 4"

CHECKPOINTS = (
    "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8",
    "meta-llama/Llama-4-Scout-17B-16E",
    "meta-llama/Llama-4-Maverick-17B-128E",
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
)

TWINS: dict[str, dict[str, Any]] = {
    "tiny": {
        "config": "meta-llama__Llama-4-Scout-17B-16E-Instruct",
        "part": "text_config",
        "text": {
            "hidden_size": 48,
            "intermediate_size": 40,
            "intermediate_size_mlp": 80,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "num_local_experts": 4,
            "num_hidden_layers": 8,
            "attention_chunk_size": 8,
            "floor_scale": 4,
            "max_position_embeddings": 512,
        },
    },
    "tiny-vision": {
        "config": "meta-llama__Llama-4-Scout-17B-16E-Instruct",
        "text": {
            "hidden_size": 48,
            "intermediate_size": 40,
            "intermediate_size_mlp": 80,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "num_local_experts": 4,
            "num_hidden_layers": 8,
            "attention_chunk_size": 8,
            "floor_scale": 4,
            "max_position_embeddings": 512,
        },
        "vision": {
            "hidden_size": 32,
            "intermediate_size": 128,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "image_size": 16,
            "patch_size": 4,
            "projector_input_dim": 36,
            "projector_output_dim": 28,
            "vision_output_dim": 28,
        },
        "image": {"max_patches": 4},
    },
    "tiny-interleaved": {
        "config": "meta-llama__Llama-4-Maverick-17B-128E-Instruct-FP8",
        "text": {
            "hidden_size": 48,
            "intermediate_size": 40,
            "intermediate_size_mlp": 80,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "num_local_experts": 6,
            "num_hidden_layers": 8,
            "attention_chunk_size": 8,
            "floor_scale": 4,
            "max_position_embeddings": 512,
        },
        "vision": {
            "hidden_size": 32,
            "intermediate_size": 128,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "image_size": 16,
            "patch_size": 4,
            "projector_input_dim": 36,
            "projector_output_dim": 28,
            "vision_output_dim": 28,
        },
        "image": {"max_patches": 4},
    },
}
