"""Gemma 4: the published checkpoints, and the tiny twins that stand for their kinds.

E2B and E4B have per-layer embeddings, and their last blocks borrow keys and values through a double-wide MLP;
26B-A4B puts a mixture beside the dense MLP; 26B-A4B and 31B use the key projection for the values on the blocks of
full attention. The twins keep those flags and change sizes only.
"""

from __future__ import annotations

from typing import Any

from transformers.models.gemma4.modeling_gemma4 import (
    Gemma4TextAttention,
    Gemma4TextDecoderLayer,
    Gemma4TextMLP,
    Gemma4VisionAttention,
    Gemma4VisionEncoderLayer,
    Gemma4VisionMLP,
    Gemma4VisionModel,
)

from probe.standard.hosts import PostNormedAttention, PostNormedMlp, SandwichLayer
from probe.standard.value import StandardValue
from probe.standard.vision import PostNormedVisionAttention, PostNormedVisionMlp, SandwichVisionLayer, Vision

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
            "layer_types": ["sliding_attention", "full_attention"],
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
            "layer_types": ["sliding_attention", "full_attention"],
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
            "layer_types": ["sliding_attention", "full_attention"],
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
            "layer_types": ["sliding_attention", "full_attention"],
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

RENAME: dict[str | type, str | list[str]] = {
    "model.embed_tokens": "embed_tokens",
    "model.layers": "layers",
    "model.norm": "norm",
    "model.language_model.embed_tokens": "embed_tokens",
    "model.language_model.layers": "layers",
    "model.language_model.norm": "norm",
    "model.vision_tower": "vision",
    "model.embed_vision": "projector",
    "patch_embedder.input_proj": "patch_embed",
    "encoder.layers": "layers",
}
"""Native paths and their standard names; the text model's own tree and the wrapper's, whichever the checkpoint has."""

ROOT_SCATTER = "root.model.source.inputs_embeds_masked_scatter_0"
"""The operation that puts the image features into the stream, first of three in the wrapper's forward."""

NO_MIXTURE = "This block has no mixture of experts"


class Layer(SandwichLayer):
    """A sandwich block with a third, per-layer branch where the checkpoint has per-layer embeddings."""

    per_layer_output = StandardValue(
        "Residual",
        "post_per_layer_input_norm.output",
        "What the per-layer-embedding branch adds to the residual stream: the post-per-layer-input norm's output",
        absent="This checkpoint has no per-layer embeddings",
    )


class Moe(PostNormedMlp):
    """The dense MLP, and the mixture beside it: the router and the experts are the block's own children."""

    mlp_output = StandardValue(
        "Residual",
        "parent.post_feedforward_layernorm.output",
        "What the MLP (and, on a mixture block, the experts) adds to the residual stream: the post-feedforward norm's output",
    )
    router_logits = StandardValue(
        "RouterLogits", "parent.router.proj.output", "The router's logits, one per expert, before the scoring", absent=NO_MIXTURE
    )
    expert_weights = StandardValue(
        "ExpertWeights", "parent.experts.inputs[0][2]", "The weight each selected expert's output is scaled by", absent=NO_MIXTURE
    )
    expert_indices = StandardValue(
        "ExpertIndices", "parent.experts.inputs[0][1]", "The expert each routing slot sends the token to", absent=NO_MIXTURE
    )
    expert_outputs = StandardValue(
        "ExpertOutputs",
        "parent.experts.source.experts_forward_1.source.weighted_out_view_0.output",
        "Each routing slot's weighted expert output",
        absent=NO_MIXTURE,
    )
    routed_output = StandardValue("Residual", "parent.experts.output", "The routed experts' combined output", absent=NO_MIXTURE)
    shared_expert_output = StandardValue(
        "Residual",
        "output",
        "The dense MLP's output, before its post-norm: the shared expert beside the mixture",
        absent=NO_MIXTURE,
        requires="parent.router",
    )

    @property
    def num_experts(self) -> int | None:
        router = getattr(self.parent, "router", None)
        return None if router is None else int(router._module.proj.out_features)

    @property
    def top_k(self) -> int | None:
        router = getattr(self.parent, "router", None)
        return None if router is None else int(router._module.config.top_k_experts)


class Tower(Vision):
    """The Gemma 4 ViT: no final norm, and a pooler outside the blocks."""

    title = "Gemma 4 ViT"
    tower_output = StandardValue("Patches", "encoder.output['last_hidden_state']", Vision.tower_output.description)
    image_features = StandardValue("ImageFeatures", f"{ROOT_SCATTER}.inputs[0][1]", Vision.image_features.description)


ENVOYS: dict[type, type] = {
    Gemma4TextDecoderLayer: Layer,
    Gemma4TextAttention: PostNormedAttention,
    Gemma4TextMLP: Moe,
    Gemma4VisionModel: Tower,
    Gemma4VisionEncoderLayer: SandwichVisionLayer,
    Gemma4VisionAttention: PostNormedVisionAttention,
    Gemma4VisionMLP: PostNormedVisionMlp,
}
"""Which host serves the values of each native class."""
