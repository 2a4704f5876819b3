"""Gemma 3, text and vision: 270M to 27B (`model_type` `gemma3_text`).

**The tree.** `embed_tokens`, `layers[i].{input_layernorm, self_attn, post_attention_layernorm,
pre_feedforward_layernorm, mlp, post_feedforward_layernorm}`, `norm` and `lm_head`. 270M and 1B are
`Gemma3ForCausalLM`, with the stack at `model`. From 4B on a checkpoint is a `gemma3` wrapper, with the stack at
`model.language_model` and the head at the root. `RENAME` holds both spellings, and the one that is there binds.

**The block** is a sandwich:

    x1  = x  + post_attention_layernorm(self_attn(input_layernorm(x)))
    out = x1 + post_feedforward_layernorm(mlp(pre_feedforward_layernorm(x1)))

**What differs from Llama, and where it is read.**

- *Contributions* are what the norms after the sublayers return, so `attention_output` and `mlp_output` are read at
  those norms, siblings of the module that hosts the value. `layer_mid` enters `pre_feedforward_layernorm`.
- *Norms* multiply by one plus their weight.
- *Queries and keys* are normed a head at a time before the rotary; they are read where the attention is called, after
  both. The scale of the scores comes from `query_pre_attn_scalar`.
- *Kinds of blocks.* Sliding and full ones alternate in the order of `layer_types`, each kind with a rotary base of its
  own. On the wrappers the full blocks' frequencies are lowered as well.
- *Embeddings* leave `embed_tokens` scaled by the root of the hidden size; the head shares the table, unscaled.

**The tower.** `model.vision_tower` is `vision`, a SigLIP encoder, and `model.multi_modal_projector` is `projector`.

- SigLIP's blocks are pre-norm; its names (`layer_norm1`, `layer_norm2`, `out_proj`, `fc2`) answer to the standard ones.
- The patch embedding is a convolution, so `vision.patch_embeddings` are read where its output has been flattened into
  rows, before the position vectors. There is no class row.
- `post_layernorm` is `vision.norm`, and `vision.tower_output` is its output and the projector's input. Pooling is the
  projector's own business.
- The image's tokens see each other in both directions, by a mask that the wrapper makes from `token_type_ids`.

**The twins** keep the flags of the config they are shrunk from and change sizes only: `tiny` is 1B's kind and
`tiny-vision` 4B's.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.models.gemma3.modeling_gemma3 import Gemma3Attention, Gemma3DecoderLayer, Gemma3MLP
from transformers.models.siglip.modeling_siglip import SiglipAttention, SiglipEncoderLayer, SiglipMLP, SiglipVisionModel

from probe.measure.identities import Check, Pair
from probe.measure.run import Run
from probe.values.hosts import PostNormedAttention, PostNormedMlp, SandwichLayer
from probe.values.value import StandardValue
from probe.values.vision import Vision, VisionAttention, VisionLayer, VisionMlp

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
