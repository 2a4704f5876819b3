"""Telling a norm by what it does."""

from __future__ import annotations

import torch


def is_norm(module: torch.nn.Module, width: int) -> bool:
    """Whether ``module`` forgets the scale of its input and keeps its shape: what a norm does and nothing else here."""
    if any(parameter.ndim > 1 for parameter in module.parameters()):
        return False
    reference = next(iter([*module.parameters(), *module.buffers()]), torch.zeros(1))
    probe = (
        torch.linspace(-1.0, 2.0, 2 * width, dtype=torch.float32, device=reference.device)
        .sin()
        .reshape(1, 2, width)
        .to(reference.dtype)
    )
    try:
        with torch.no_grad():
            small, large = module(probe), module(probe * 16)
    except (TypeError, RuntimeError, ValueError, AttributeError, IndexError):
        return False
    if not isinstance(small, torch.Tensor) or small.shape != probe.shape:
        return False
    scale = float(small.abs().max())
    return scale > 0 and float((small - large).abs().max()) < 0.01 * scale
