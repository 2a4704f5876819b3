"""Several prompts in one trace, for outputs that also hold a number for all of them."""

from __future__ import annotations

import torch
from nnsight.intervention.batching import Batcher


class PassScalars(Batcher):
    """Hands every prompt its own rows, as nnsight does, and a tensor without axes whole.

    A mixture whose config asks for the router's logits returns such a tensor, the loss of the router.
    """

    def _narrow_tensor(self, tensor: torch.Tensor, group: list[int]) -> torch.Tensor:
        return super()._narrow_tensor(tensor, group) if tensor.ndim else tensor

    def _widen_tensor(self, full: torch.Tensor, group: list[int], edited: torch.Tensor) -> torch.Tensor:
        return super()._widen_tensor(full, group, edited) if full.ndim else edited
