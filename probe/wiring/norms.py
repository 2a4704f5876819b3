"""Telling a norm by what it does."""

from __future__ import annotations

import torch


def is_norm(module: torch.nn.Module, width: int) -> bool:
    """Whether ``module`` forgets the scale of its input and keeps its shape: what a norm does and nothing else here."""
    return not any(parameter.ndim > 1 for parameter in module.parameters()) and _forgets_scale(module, width)


def is_gated_norm(module: torch.nn.Module, width: int) -> bool:
    """Whether ``module`` is a norm that scales what it normed by a gate: one of its children is a norm, it forgets the
    scale of its input as a whole, and a channel that enters as zero leaves as zero, which no other projection grants.
    """
    if not any(is_norm(child, width) for child in module.children()) or not _forgets_scale(module, width):
        return False
    silenced = _probe(module, width)
    silenced[..., 0] = 0
    with torch.no_grad():
        left: torch.Tensor = module(silenced)
    return float(left[..., 0].abs().max()) < 1e-6 * float(left.abs().max())


def _forgets_scale(module: torch.nn.Module, width: int) -> bool:
    probe = _probe(module, width)
    try:
        with torch.no_grad():
            small, large = module(probe), module(probe * 16)
    except (TypeError, RuntimeError, ValueError, AttributeError, IndexError, KeyError):
        return False
    if not isinstance(small, torch.Tensor) or small.shape != probe.shape:
        return False
    scale = float(small.abs().max())
    return scale > 0 and float((small - large).abs().max()) < 0.01 * scale


def _probe(module: torch.nn.Module, width: int) -> torch.Tensor:
    """Two rows to try a module on, `[1, 2, width]`, where and in the dtype in which it computes."""
    reference = next(iter([*module.parameters(), *module.buffers()]), torch.zeros(1))
    rows = torch.linspace(-1.0, 2.0, 2 * width, dtype=torch.float32, device=reference.device).sin()
    return rows.reshape(1, 2, width).to(reference.dtype)
