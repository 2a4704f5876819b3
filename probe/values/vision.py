"""Hosts of a vision encoder: the tower, its blocks, and where its features enter the text model."""

from __future__ import annotations

from typing import Any

import torch

from .hosts import Attention, Host, Layer, Mlp
from .value import StandardValue


def _image_token_mask(host: Host, inputs: tuple[tuple[Any, ...], dict[str, Any]]) -> torch.Tensor:
    args, kwargs = inputs
    ids = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
    return ids == host.root._module.config.image_token_id


class Vision(Host):
    """The vision tower; its values beyond the blocks."""

    image_token_mask = StandardValue(
        "ImageTokenMask",
        "root.inputs",
        "Which positions hold image tokens: input_ids == the config's image_token_id; read-only",
        derive=_image_token_mask,
        formula="kwargs['input_ids'] == config.image_token_id",
    )
    patch_embeddings = StandardValue("Patches", "patch_embed.output", "The patch embedding's output, one row per patch")
    tower_output = StandardValue(
        "Patches", "norm.output", "The last block's stream after the tower's final norm, before any pooling or adapter"
    )
    image_features = StandardValue(
        "ImageFeatures",
        "root.source.inputs_embeds_masked_scatter_0.inputs[0][1]",
        "The image features the text model receives at the image tokens, flat over them",
    )

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def vision_hidden_size(self) -> int:
        return int(self._module.config.hidden_size)

    @property
    def num_heads(self) -> int:
        return int(self.layers[0].self_attn.num_heads)

    @property
    def head_dim(self) -> int:
        return int(self.layers[0].self_attn.head_dim)

    @property
    def intermediate_size(self) -> int:
        return int(self.layers[0].mlp.intermediate_size)

    @property
    def patch_size(self) -> int:
        return int(self._module.config.patch_size)

    @property
    def image_size(self) -> int | None:
        """Side of the image in pixels; None where the size varies."""
        size = getattr(self._module.config, "image_size", None)
        return int(size) if size is not None else None


class VisionLayer(Layer):
    """A block of the tower. Defaults: a norm before each of two sublayers."""

    layer_input = StandardValue("Patches", "input", "The tower's stream entering the block")
    attention_norm_output = StandardValue(
        "Patches", "input_layernorm.output", "The normed stream entering the attention"
    )
    layer_mid = StandardValue(
        "Patches", "post_attention_layernorm.input", "The tower's stream after the attention add", live=True
    )
    mlp_norm_output = StandardValue("Patches", "post_attention_layernorm.output", "The normed stream entering the MLP")
    mlp_input = StandardValue("Patches", "mlp.input", "What the MLP is called with")
    layer_output = StandardValue("Patches", "output", "The tower's stream leaving the block")


class SandwichVisionLayer(VisionLayer):
    """A block of the tower that norms each sublayer before and after."""

    layer_mid = StandardValue(
        "Patches", "pre_feedforward_layernorm.input", VisionLayer.layer_mid.description, live=True
    )
    mlp_norm_output = StandardValue(
        "Patches", "pre_feedforward_layernorm.output", VisionLayer.mlp_norm_output.description
    )


class VisionAttention(Attention):
    """A tower's attention."""

    attention_output = StandardValue("Patches", "output[0]", "What the attention adds to the tower's stream")


class VisionMlp(Mlp):
    """A tower's MLP."""

    mlp_neurons = StandardValue("Neurons", "down_proj.input", "What the down projection receives")
    mlp_output = StandardValue("Patches", "output", "What the MLP adds to the tower's stream")


class PostNormedVisionAttention(VisionAttention):
    """A tower's attention whose contribution is the output of the norm that follows it."""

    attention_output = StandardValue(
        "Patches",
        "parent.post_attention_layernorm.output",
        "What the attention adds to the tower's stream: the post-attention norm's output",
    )


class PostNormedVisionMlp(VisionMlp):
    """A tower's MLP whose contribution is the output of the norm that follows it."""

    mlp_output = StandardValue(
        "Patches",
        "parent.post_feedforward_layernorm.output",
        "What the MLP adds to the tower's stream: the post-feedforward norm's output",
    )
