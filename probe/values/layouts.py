"""Layouts: the names of a value's axes, and how a tensor as the model holds it is viewed in them.

A model may hold a value flattened: tokens as one axis (`[batch * seq, …]`, as mixtures do) or heads side by side
(`[…, num_heads * head_dim]`, as an output projection takes them). :func:`fit` gives the view with the layout's axes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Layout:
    """A layout's name and its axes, in order."""

    name: str
    dims: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} [{' '.join(self.dims)}]" if self.dims else self.name


def _layouts(**axes: str) -> dict[str, Layout]:
    return {name: Layout(name, tuple(dims.split())) for name, dims in axes.items()}


LAYOUTS = _layouts(
    Residual="batch seq hidden_size",
    ResidualLanes="batch seq lanes hidden_size",
    Logits="batch seq vocab_size",
    NextTokenProbs="batch vocab_size",
    Tokens="batch seq",
    Queries="batch num_heads seq qk_head_dim",
    Keys="batch num_kv_heads seq qk_head_dim",
    Values="batch num_kv_heads seq head_dim",
    Pattern="batch num_heads query key",
    HeadOutputs="batch seq num_heads head_dim",
    Neurons="batch seq intermediate_size",
    RouterLogits="batch seq num_experts",
    ExpertWeights="batch seq top_k",
    ExpertIndices="batch seq top_k",
    ExpertOutputs="batch seq top_k hidden_size",
    Channels="batch seq channels",
    MixerKeys="batch num_key_heads seq key_head_dim",
    MixerValues="batch num_value_heads seq value_head_dim",
    MixerHeads="batch seq num_value_heads value_head_dim",
    MixerGates="batch seq num_value_heads",
    MixerChannelGates="batch seq num_value_heads key_head_dim",
    MixerState="batch num_value_heads key_head_dim value_head_dim",
    MixerNormalizer="batch num_value_heads key_head_dim",
    MixerStabilizer="batch num_value_heads",
    ScanHeads="batch seq scan_heads scan_head_dim",
    ScanSteps="batch seq scan_heads",
    ScanMaps="batch seq scan_groups state_size",
    ScanState="batch scan_heads scan_head_dim state_size",
    ScanTokenStates="batch seq scan_heads scan_head_dim state_size",
    ChannelMaps="batch seq state_size",
    ChannelState="batch channels state_size",
    ChannelTokenStates="batch seq channels state_size",
    ChannelVector="batch channels",
    Patches="images patches vision_hidden_size",
    ImageTokenMask="batch seq",
    ImageFeatures="image_tokens hidden_size",
    scalar="",
)


def fit(tensor: torch.Tensor, layout: Layout, *, size: tuple[int, int] | None, heads: int | None) -> torch.Tensor:
    """View ``tensor`` in the axes of ``layout``.

    Args:
        tensor: as the model holds it: with the layout's axes, with two neighbouring axes folded into one, with an axis
            of size one after the batch or at the end, or, for image features, with the images apart.
        layout: the axes wanted.
        size: ``(batch, seq)`` of the current call, to unfold a token axis.
        heads: number of heads, to unfold heads that stand side by side.

    Returns:
        A view of ``tensor`` where its strides allow one, a copy otherwise.

    Raises:
        ValueError: the tensor does not fit the layout.
    """
    wanted = len(layout.dims)
    if tensor.ndim == wanted:
        return tensor
    if layout.name == "ImageFeatures" and tensor.ndim == wanted + 1:
        return tensor.flatten(0, 1)
    if tensor.ndim == wanted + 1 and 1 in (tensor.shape[1], tensor.shape[-1]):
        return tensor.squeeze(1 if tensor.shape[1] == 1 else -1)
    if tensor.ndim == wanted - 1:
        if layout.name == "HeadOutputs" and heads:
            return tensor.unflatten(-1, (heads, -1))
        if layout.dims[:2] == ("batch", "seq") and size and tensor.shape[0] == size[0] * size[1]:
            return tensor.unflatten(0, size)
    raise ValueError(f"a tensor of shape {list(tensor.shape)} is not {layout}")
