"""Gemma 3: the published checkpoints, and the tiny twins that stand for their kinds.

270M and 1B are text models; from 4B on a SigLIP encoder feeds the same text model, whose full-attention blocks then
rescale their rotary positions.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.models.gemma3.modeling_gemma3 import Gemma3Attention, Gemma3DecoderLayer, Gemma3MLP
from transformers.models.siglip.modeling_siglip import SiglipAttention, SiglipEncoderLayer, SiglipMLP, SiglipVisionModel

from probe.measure.identities import Check, Pair
from probe.measure.run import Run
from probe.standard.hosts import PostNormedAttention, PostNormedMlp, SandwichLayer
from probe.standard.value import StandardValue
from probe.standard.vision import Vision, VisionAttention, VisionLayer, VisionMlp

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
            "layer_types": ["sliding_attention", "full_attention"],
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
            "layer_types": ["sliding_attention", "full_attention"],
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

RENAME: dict[str | type, str | list[str]] = {
    "model.embed_tokens": "embed_tokens",
    "model.layers": "layers",
    "model.norm": "norm",
    "model.language_model.embed_tokens": "embed_tokens",
    "model.language_model.layers": "layers",
    "model.language_model.norm": "norm",
    "model.vision_tower": "vision",
    "model.multi_modal_projector": "projector",
    "embeddings.patch_embedding": "patch_embed",
    "encoder.layers": "layers",
    "post_layernorm": "norm",
    "activation_fn": "act_fn",
    "fc2": "down_proj",
    "layer_norm1": "input_layernorm",
    "layer_norm2": "post_attention_layernorm",
    "out_proj": "o_proj",
}
"""Native paths and their standard names; the text model's own tree and the wrapper's, whichever the checkpoint has."""

ROOT_SCATTER = "root.model.source.inputs_embeds_masked_scatter_0"
"""The operation that puts the image features into the stream."""


class Tower(Vision):
    """SigLIP: no class row, and a projector that pools patches by averaging."""

    title = "SigLIP"
    patch_embeddings = StandardValue(
        "Patches", "embeddings.source.embeddings_0.output", Vision.patch_embeddings.description
    )
    image_features = StandardValue("ImageFeatures", f"{ROOT_SCATTER}.inputs[0][1]", Vision.image_features.description)


ENVOYS: dict[type, type] = {
    Gemma3DecoderLayer: SandwichLayer,
    Gemma3Attention: PostNormedAttention,
    Gemma3MLP: PostNormedMlp,
    SiglipVisionModel: Tower,
    SiglipEncoderLayer: VisionLayer,
    SiglipAttention: VisionAttention,
    SiglipMLP: VisionMlp,
}
"""Which host serves the values of each native class."""


def _patches(run: Run) -> Pair | None:
    embedded = run.root("patch_embeddings", "model.vision")
    if embedded is None:
        return None
    with torch.no_grad():
        grid = run.model.vision.embeddings.patch_embedding._module(run.inputs["pixel_values"].to(run.dtype)).float()
    return grid.flatten(2).transpose(1, 2), embedded


VISION_CHECKS = (
    Check("patches", "patch_embedding(pixel_values), flat over the grid == vision.patch_embeddings", root=_patches),
)
