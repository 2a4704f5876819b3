"""From the last block's output to the logits: the modules on the way, the head last, and what is done between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Number = float | Callable[[Any], float]
"""A constant, or what gives it for a text config."""


@dataclass(frozen=True)
class Readout:
    """How a stream becomes logits.

    Attributes:
        modules: native paths or standard names, the head last; none where other arithmetic stands between them.
        leaving: what the first of them takes is times the last block's output.
        entering: what the head's input is times the output of the module before it.
        scale, cap: what the model does to the head's output: ``scale * x``, then ``cap * tanh(x / cap)``.
    """

    modules: tuple[str, ...] = ("norm", "lm_head")
    leaving: Number = 1.0
    entering: Number = 1.0
    scale: Number = 1.0
    cap: Number | None = None

    def after_head(self, logits: torch.Tensor, config: Any) -> torch.Tensor:
        """What the model does to the head's logits."""
        logits = logits * number(self.scale, config)
        if self.cap is None:
            return logits
        cap = number(self.cap, config)
        return torch.tanh(logits / cap) * cap


def number(given: Number, config: Any) -> float:
    """A number, or what a text config says it is."""
    return given(config) if callable(given) else given
