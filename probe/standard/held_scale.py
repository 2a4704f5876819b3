"""The way from a stream to the head's logits with every norm's scale held: a linear map, so that parts add up."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..errors import ProbeError

Map = Callable[[torch.Tensor], torch.Tensor]

LARGE = 1e4
"""Size of a vector on which a norm's epsilon is nothing."""

CLOSE = 1e-3
"""Largest relative difference at which two outputs count as the same."""


def linear_part(module: Map, stream: torch.Tensor) -> Map:
    """The linear part of a module: of an affine one, or of a norm whose scale is held at what it is on ``stream``.

    Which it is, is told by its answer to the stream doubled: an affine module's answer doubles, a norm's stays.

    Args:
        module: maps ``[…, width]`` to ``[…, width]`` or to another width.
        stream: ``[…, width]``.

    Returns:
        A map of parts of that stream, ``[…, width]``, whose answers add up to the module's answer to their sum, less
        its bias.

    Raises:
        ProbeError: it is neither.
    """
    bias = module(torch.zeros_like(stream))
    whole, doubled = module(stream) - bias, module(2 * stream) - bias
    if _close(doubled, 2 * whole):
        return lambda part: module(part) - bias
    if _close(doubled, whole):
        held = _norm(module, stream, bias, whole)
        if _close(held(stream), whole):
            return held
    raise ProbeError(f"{type(module).__name__} before the head is neither linear nor a norm, so parts have no logits.")


def _norm(module: Map, stream: torch.Tensor, bias: torch.Tensor, whole: torch.Tensor) -> Map:
    """``part -> gain * centred(part) / scale``: the gain from a vector of large entries, the scale by least squares."""
    shifts = _close(module(stream + stream.std()) - bias, whole)

    def centred(part: torch.Tensor) -> torch.Tensor:
        return part - part.mean(-1, keepdim=True) if shifts else part

    known = torch.full_like(stream[..., :1, :], LARGE)
    known[..., ::2] *= -1
    gain = (module(known) - bias[..., :1, :]) / centred(known)
    along = gain * centred(stream)
    scale = (whole * along).sum(-1, keepdim=True) / along.square().sum(-1, keepdim=True)
    return lambda part: scale * gain * centred(part)


def _close(left: torch.Tensor, right: torch.Tensor) -> bool:
    return float((left - right).abs().max()) <= CLOSE * float(right.abs().max())
