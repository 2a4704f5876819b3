"""Gemma 4, text and vision: E2B, E4B, 26B-A4B and 31B (`model_type` `gemma4_text`).

**The tree.** `embed_tokens`, `layers[i].{input_layernorm, self_attn, post_attention_layernorm,
pre_feedforward_layernorm, mlp, post_feedforward_layernorm}`, `norm` and `lm_head`: Gemma 3's. A bare text config
builds `Gemma4ForCausalLM`, with the stack at `model`. The published repositories are `gemma4` wrappers, with the stack
at `model.language_model` and the head at the root. `RENAME` holds both spellings, and the one that is there binds.

**The block**, with `x` entering and three, or two, terms added:

    x1  = x  + post_attention_layernorm(self_attn(input_layernorm(x)))
    x2  = x1 + post_feedforward_layernorm(mlp(pre_feedforward_layernorm(x1)), the mixture joined in)
    x3  = x2 + post_per_layer_input_norm(per_layer_projection(act_fn(per_layer_input_gate(x2)) * per_layer_input))
    out = x3 * layer_scalar

**What differs from Llama, and where it is read.**

- *Contributions.* The stream receives what the norm after a sublayer returns, so `attention_output` and `mlp_output`
  are read at those norms, siblings of the module that hosts the value.
- *The scalar.* `layer_scalar` is a buffer of the block and multiplies the finished sum in place. Contributions are
  served before it; the identity carries it.
- *Per-layer embeddings* (E2B, E4B). A third term from modules that are the block's own children, hence
  `layers[i].per_layer_output`. The block's second argument is its part of what a second embedding table
  and a projection of the first one's output give. A checkpoint without them has no such value.
- *The mixture* (26B-A4B). `router` and `experts` are children of the block, not of `mlp`. `mlp` hosts their values all
  the same and reaches them through its parent, so that they have the names they have on every family. The router reads
  the stream after the attention's add and returns probabilities, so `router_logits` are its projection's output.
  `shared_expert_output` is the dense MLP's own output. Three norms join the two parts, the last of them being the one
  `mlp_output` is read at. A dense checkpoint's MLP has that output too, but no mixture to share it with, so the value
  requires a router.
- *Keys and values* may be another block's: the last `num_kv_shared_layers` blocks attend with those of the last block
  of their kind before the sharing starts. With `attention_k_eq_v`, full blocks have no `v_proj` and make their values
  from the key projection. Either way `attention_keys` and `attention_values` are what the attention is called with,
  served as private copies: an edit stays in the block.
- *Sizes* differ between blocks: head width and key/value heads between sliding and full ones, the MLP's width between
  borrowing blocks and the rest. The root reports the first block's; ask `layers[i].self_attn` and `layers[i].mlp`.
- *The readout* is capped (`final_logit_softcapping`, in the text config), which `project_on_vocab` applies.

**The tower.** `model.vision_tower` is `vision`, and `model.embed_vision`, the last module before the scatter, is
`projector`. Its blocks are the same sandwich, without branch and scalar.

- `vision.patch_embed` is the linear map of the processor's flat patches; position vectors are added after it.
- Padded rows run through every block: nothing but a mask on the keys sets them apart, and every `layer_output` has
  them.
- No norm follows the blocks. `vision.tower_output` is the encoder's output, padding included.
- The pooler zeroes the padding, averages squares of patches and scales the mean; where the config sets `standardize`,
  the tower then shifts and scales by two buffers. `projector.input` is the result, flat over the images.
- The audio tower and its embedder keep their native names.

**The twins** keep the flags of the config they are shrunk from and change sizes only: `tiny` has E2B's text model,
`tiny-vision` its wrapper, `tiny-moe` is 26B-A4B's kind and `tiny-dense` 31B's.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.models.gemma4.modeling_gemma4 import (
    Gemma4TextAttention,
    Gemma4TextDecoderLayer,
    Gemma4TextMLP,
    Gemma4VisionAttention,
    Gemma4VisionEncoderLayer,
    Gemma4VisionMLP,
    Gemma4VisionModel,
)

from probe.measure.identities import Check, Pair
from probe.measure.run import Run
from probe.values.hosts import PostNormedAttention, PostNormedMlp, SandwichLayer
from probe.values.value import StandardValue
from probe.values.vision import PostNormedVisionAttention, PostNormedVisionMlp, SandwichVisionLayer, Vision

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
        "text": "tiny",
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
            "moe_intermediate_size": 24,
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
        "vision": "tiny-vision",
        "image": "tiny-vision",
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
        "vision": "tiny-vision",
        "image": "tiny-vision",
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
        "What the MLP (and, on a mixture block, the experts) adds to the residual stream: "
        "the post-feedforward norm's output",
    )
    router_logits = StandardValue(
        "RouterLogits",
        "parent.router.proj.output",
        "The router's logits, one per expert, before the scoring",
        absent=NO_MIXTURE,
    )
    expert_weights = StandardValue(
        "ExpertWeights",
        "parent.experts.inputs[0][2]",
        "The weight each selected expert's output is scaled by",
        absent=NO_MIXTURE,
    )
    expert_indices = StandardValue(
        "ExpertIndices",
        "parent.experts.inputs[0][1]",
        "The expert each routing slot sends the token to",
        absent=NO_MIXTURE,
    )
    expert_outputs = StandardValue(
        "ExpertOutputs",
        "parent.experts.source.experts_forward_1.source.weighted_out_view_0.output",
        "Each routing slot's weighted expert output",
        absent=NO_MIXTURE,
    )
    routed_output = StandardValue(
        "Residual", "parent.experts.output", "The routed experts' combined output", absent=NO_MIXTURE
    )
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
    tower_output = StandardValue(
        "Patches",
        "encoder.output['last_hidden_state']",
        "The last block's stream, before the pooler; this tower has no final norm",
    )
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


def _patches(run: Run) -> Pair | None:
    embedded = run.root("patch_embeddings", "model.vision")
    if embedded is None:
        return None
    with torch.no_grad():
        return run.model.vision.patch_embed._module(
            2 * (run.inputs["pixel_values"].to(run.dtype) - 0.5)
        ).float(), embedded


VISION_CHECKS = (Check("patches", "patch_embed(2 * (pixel_values - 0.5)) == vision.patch_embeddings", root=_patches),)
