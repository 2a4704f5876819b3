"""Llama 4, text and vision: Scout and Maverick (`model_type` `llama4_text`).

**The tree** is Llama's, with the feed-forward called `feed_forward`, here `mlp`. A bare text config builds
`Llama4ForCausalLM`, with the stack at `model`. The published repositories are `llama4` wrappers, which keep that whole
class, head included, at `language_model`. `RENAME` holds both spellings, and the one that is there binds.

**What differs from Llama, and where it is read.** Both adds are in the block and nothing scales them.

- *Blocks without rotary.* Where `no_rope_layers` is zero, a block attends over the whole context, without rotary and
  without norming queries and keys; with `attn_temperature_tuning` its queries grow with the logarithm of the
  position. The others rotate, then norm without a gain (`use_qk_norm`: Scout does, Maverick does not), and attend
  within chunks of `attention_chunk_size`. Queries and keys are read where the attention is called, after all of it.
- *The eager attention* is this class's own function of the usual shape; its softmax runs in the model's dtype.
- *Mixtures and dense MLPs.* A block in `moe_layers` has a mixture, which returns a pair whose first part is flat over
  batch and sequence; another block has a dense MLP, which returns one tensor. The block views either into the stream's
  shape, and `mlp_output` is read at that operation, `FEED_FORWARD_VIEW`: one shape on both kinds, and an edit reaches
  the add.
- *Dense scores.* The router gives every expert a score, zero where it was not chosen, and scales the experts' inputs by
  them; every expert runs on every token. No weight and no output belongs to a slot, so `expert_weights` and
  `expert_outputs` are unavailable and say why (`DENSE_SCORES`). `router_logits` and `expert_indices` are operations of
  the router's forward, `routed_output` the sum in the mixture's.
- *The shared expert's output* is overwritten: the mixture adds the routed sum into it in place. So
  `shared_expert_output` is a copy taken as the expert returns, and its edits are carried back. The shared expert is a
  dense MLP by class, but the block adds the mixture's sum, so it has no `mlp_output`.
- *Sizes.* This config's `intermediate_size` is an expert's width; a dense MLP's is `intermediate_size_mlp`,
  and the root's `intermediate_size` gives the latter. On Scout, all mixtures, no module has that width.

**The tower.** `vision_model` is `vision`, and `multi_modal_projector`, the last module before the scatter
(`ROOT_SCATTER`), is `projector`. It is a pre-norm ViT over one tile a row.

- `vision.patch_embed` unfolds and projects. The class row is appended *after* the patches, then position vectors and
  `layernorm_pre`; every block rotates by the patch's place and leaves the class row alone.
- `layernorm_post` is `vision.norm`; `vision.tower_output` is its output, class row included.
- The tower then drops the class row, and `vision.vision_adapter` shuffles pixels and projects. `projector.input` is
  that, flat over the tiles.
- The installed transformers' wrapper asks its text model's output for a field it does not have; loading mends it
  (`probe.checkpoints.repairs`).

**The twins** keep the flags of the config they are shrunk from and change sizes only: `tiny` has Scout's text model,
`tiny-vision` its wrapper, `tiny-interleaved` is Maverick's kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers.models.llama4.modeling_llama4 import (
    Llama4TextAttention,
    Llama4TextDecoderLayer,
    Llama4TextMLP,
    Llama4TextMoe,
    Llama4VisionAttention,
    Llama4VisionEncoderLayer,
    Llama4VisionMLP,
    Llama4VisionModel,
)

from probe.measure.identities import Block, Check, Pair
from probe.measure.run import Run
from probe.values.hosts import Attention, Layer
from probe.values.hosts import Mlp as DenseMlp
from probe.values.value import StandardValue, Unserved
from probe.values.vision import Vision, VisionAttention, VisionLayer, VisionMlp

if TYPE_CHECKING:
    from probe.standard import StandardizedTransformer

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
        "rope": {"original_max_position_embeddings": 32},
    },
    "tiny-vision": {
        "config": "meta-llama__Llama-4-Scout-17B-16E-Instruct",
        "text": "tiny",
        "rope": {"original_max_position_embeddings": 32},
        "vision": {
            "hidden_size": 32,
            "intermediate_size": 128,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "image_size": 16,
            "patch_size": 4,
            "projector_input_dim": 36,
            "projector_output_dim": 36,
            "vision_output_dim": 36,
        },
        "image": {"max_patches": 2},
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
        "vision": "tiny-vision",
        "image": "tiny-vision",
    },
}

RENAME: dict[str | type, str | list[str]] = {
    "model.embed_tokens": "embed_tokens",
    "model.layers": "layers",
    "model.norm": "norm",
    "language_model.model.embed_tokens": "embed_tokens",
    "language_model.model.layers": "layers",
    "language_model.model.norm": "norm",
    "language_model.lm_head": "lm_head",
    "feed_forward": "mlp",
    "shared_expert": "shared_experts",
    "vision_model": "vision",
    "multi_modal_projector": "projector",
    "patch_embedding": "patch_embed",
    "layernorm_post": "norm",
    "activation_fn": "act_fn",
    "fc2": "down_proj",
}
"""Native paths and their standard names; the text model's own tree and the wrapper's, whichever the checkpoint has."""

ROOT_SCATTER = "inputs_embeds_masked_scatter_0"
"""The operation of the wrapper's forward that puts the image features into the stream."""

FEED_FORWARD_VIEW = "hidden_states_view_0"
"""The operation of the block's forward that brings either feed-forward's output into the stream's shape."""

DENSE_SCORES = (
    "The router gives every expert a score for every token and scales the experts' inputs by them: "
    "no weight and no output belongs to a routing slot."
)
"""Why this family has no `expert_weights` and no `expert_outputs`."""


class Mlp(DenseMlp):
    """A dense feed-forward, or the shared expert inside a mixture."""

    mlp_output = StandardValue(
        "Residual",
        f"parent.source.{FEED_FORWARD_VIEW}.output",
        "What the MLP adds to the residual stream: its output viewed in the residual's shape",
        absent="The block adds the mixture's sum, not this expert alone",
    )


class Moe(Mlp):
    """The mixture: a shared expert, and routed experts that run on every token, scaled on their input."""

    router_logits = StandardValue(
        "RouterLogits", "router.source.forward_0.output", "The router's logits, one per expert, before the scoring"
    )
    expert_weights = Unserved(DENSE_SCORES, "The weight each selected expert's output is scaled by")
    expert_indices = StandardValue(
        "ExpertIndices", "router.source.torch_topk_0.output[1]", "The expert each routing slot sends the token to"
    )
    expert_outputs = Unserved(DENSE_SCORES, "Each routing slot's weighted expert output")
    routed_output = StandardValue("Residual", "source.sum_0.output", "The routed experts' combined output")
    shared_expert_output = StandardValue(
        "Residual",
        "shared_experts.output",
        "The shared expert's output (a copy, since the mixture adds the routed sum into the live tensor in place)",
        copy=True,
    )

    @property
    def num_experts(self) -> int:
        return int(self._module.router.num_experts)

    @property
    def top_k(self) -> int:
        return int(self._module.router.top_k)


class Tower(Vision):
    """The Llama 4 ViT: the class row comes last, and a pixel-shuffle adapter follows the final norm."""

    title = "Llama 4 ViT"
    image_features = StandardValue(
        "ImageFeatures", f"root.source.{ROOT_SCATTER}.inputs[0][1]", Vision.image_features.description
    )


ENVOYS: dict[type, type] = {
    Llama4TextDecoderLayer: Layer,
    Llama4TextAttention: Attention,
    Llama4TextMLP: Mlp,
    Llama4TextMoe: Moe,
    Llama4VisionModel: Tower,
    Llama4VisionEncoderLayer: VisionLayer,
    Llama4VisionAttention: VisionAttention,
    Llama4VisionMLP: VisionMlp,
}
"""Which host serves the values of each native class."""


def intermediate_size(model: StandardizedTransformer) -> int:
    """The dense MLP's width, `intermediate_size_mlp`; this config's `intermediate_size` is the experts'."""
    return int(model.text_config.intermediate_size_mlp)


def _routed(block: Block) -> Pair | None:
    entering, logits, routed = (
        block.value("", "mlp_input"),
        block.value("mlp", "router_logits"),
        block.value("mlp", "routed_output"),
    )
    indices = block.value("mlp", "expert_indices")
    if entering is None or logits is None or routed is None or indices is None:
        return None
    scores = torch.zeros_like(logits).scatter(-1, indices, logits.gather(-1, indices).sigmoid())
    scaled = entering.flatten(0, 1)[None] * scores.flatten(0, 1).T[..., None]
    out = block.apply(block.part("mlp.experts"), scaled.flatten(0, 1))
    return out.unflatten(0, scaled.shape[:2]).sum(0).view_as(routed), routed


def _patches(run: Run) -> Pair | None:
    embedded = run.root("patch_embeddings", "model.vision")
    if embedded is None:
        return None
    with torch.no_grad():
        return run.model.vision.patch_embed._module(run.inputs["pixel_values"].to(run.dtype)).float(), embedded


BLOCK_CHECKS = (
    Check(
        "routed sum",
        "sum over e of experts[e](mlp_input * sigmoid(router_logits[e]) if e is chosen else 0) == routed_output",
        _routed,
    ),
)
"""The identity of the dense scores, beside the general ones."""

VISION_CHECKS = (Check("patches", "patch_embed(pixel_values) == vision.patch_embeddings", root=_patches),)
