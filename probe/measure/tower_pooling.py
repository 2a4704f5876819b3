"""How a tower's patches become image tokens after the blocks, where that is an average and a shift."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..standard.stack import same
from .tower_positions import patch_rows
from .tower_runs import TowerRuns


@dataclass(frozen=True)
class Average:
    """Tokens that are averages of ``side`` × ``side`` patches times ``factor``, as ``module`` returns them."""

    module: str
    side: int
    factor: float


@dataclass(frozen=True)
class Shift:
    """A shift and a scale of each dimension between the pooling and the projector, and the tensors that hold them."""

    shift: str | None
    scale: str | None


def average(runs: TowerRuns) -> Average | None:
    """The average fitted over every token of the run's image; None where tokens are no averages of patches."""
    tokens, output, rows, places = pooled(runs), runs.base("tower_output"), patch_rows(runs), runs.coordinates
    module = runs.pooling_module
    if tokens is None or output is None or rows is None or places is None or module is None:
        return None
    side = round((runs.patch_count / max(len(tokens), 1)) ** 0.5)
    blocks: dict[tuple[int, int, int], list[torch.Tensor]] = {}
    for image, row in enumerate(output):
        for patch, (column, line) in enumerate(places[image].tolist()):
            if column >= 0:
                blocks.setdefault((image, line // side, column // side), []).append(row[rows[patch]])
    means = torch.stack([torch.stack(blocks[key]).mean(0) for key in sorted(blocks)])
    if means.shape != tokens.shape:
        return None
    factor = float((means * tokens).sum() / means.square().sum())
    return Average(module, side, factor) if same(means * factor, tokens, runs.tolerance) else None


def shift(runs: TowerRuns) -> Shift | None:
    """What happens to each dimension between pooling and projector; None where nothing does, or no fit holds."""
    tokens = pooled(runs)
    entering = next((station.entering for station in runs.stations if station.path == "projector"), None)
    if tokens is None or entering is None or entering.shape != tokens.shape or len(tokens) < 3:
        return None
    if same(entering, tokens, runs.tolerance):
        return None
    centered = tokens - tokens.mean(0)
    scale = (centered * (entering - entering.mean(0))).sum(0) / centered.square().sum(0)
    offset = entering.mean(0) - scale * tokens.mean(0)
    if not same(tokens * scale + offset, entering, runs.rough):
        return None
    return Shift(_named(runs, -offset / scale), _named(runs, scale))


def pooled(runs: TowerRuns) -> torch.Tensor | None:
    """``[tokens, width]``: what the module that lessens the rows returns, without rows of zeros."""
    station = next((found for found in runs.stations if found.path == runs.pooling_module), None)
    if station is None or station.leaving is None:
        return None
    flat = station.leaving.flatten(0, -2)
    return flat[flat.abs().amax(-1) > 0]


def _named(runs: TowerRuns, wanted: torch.Tensor) -> str | None:
    """The tower's own tensor that holds these numbers: of those near them the nearest."""
    module = runs.tower._module
    own = (*module.named_buffers(recurse=False), *module.named_parameters(recurse=False))
    errors = {
        str(name): float((tensor.float() - wanted).abs().max()) for name, tensor in own if tensor.shape == wanted.shape
    }
    nearest = min(errors, key=lambda name: errors[name], default=None)
    return nearest if nearest is not None and errors[nearest] <= runs.rough * float(wanted.abs().max()) else None
