"""Each attention's projections perturbed, one a row: what its queries, keys, values and output make of that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch
from nnsight.intervention.envoy import Envoy

from ..measure.run import Run
from .extra import BRIEF, SCALE, attentions, noise, noisy, once, part
from .perturbed import Batch, perturbed
from .rows import Change, Rows, Times, hooks
from .tap import Tapped

LARGE = 1e4
"""What the output of every projection is multiplied by in one row, to reach any range that it is kept within."""


@dataclass
class Projections:
    """What an attention's queries, keys, values and output do when one of its projections is perturbed.

    Attributes:
        taps: what passed in each block's attention; nothing where it has none.
        inside: the same, and what passed anywhere in a block without an attention.
        noise: the row in which noise was added to a projection's output, by the projection's path below the attention.
        scaled: the row in which that output was multiplied by ``SCALE``, likewise.
        heads: the row in which what every head gives was multiplied.
        up: the row in which what the MLP's up projection gives was multiplied.
        whole: the row in which the attention's input was multiplied.
        nothing: the row in which that input is zero.
        place: the row in which noise was added to that input at one position, ``at``.
        large: the row in which every projection's output was multiplied by :data:`LARGE`.
        own: for each block the paths of its attention's projections.
        outputs: what each projection returned, by block and path.
        down: what each MLP's down projection returned, by block.
        returned: what each attention returned, by block.
    """

    taps: list[Tapped] = field(default_factory=list)
    inside: list[Tapped] = field(default_factory=list)
    noise: dict[str, int] = field(default_factory=dict)
    scaled: dict[str, int] = field(default_factory=dict)
    heads: int = 0
    up: int = 0
    whole: int = 0
    nothing: int = 0
    place: int = 0
    large: int = 0
    at: int = 0
    own: list[list[str]] = field(default_factory=list)
    outputs: dict[tuple[int, str], torch.Tensor] = field(default_factory=dict)
    down: dict[int, torch.Tensor] = field(default_factory=dict)
    returned: dict[int, torch.Tensor] = field(default_factory=dict)


def linear_paths(attention: Envoy | None) -> list[str]:
    """Paths of the modules below an attention that hold a matrix, and are no norm."""
    if attention is None:
        return []
    return [
        path
        for path, module in attention._module.named_modules()
        if any(p is not None and p.ndim == 2 and not _forgets_scale(module, p) for p in module._parameters.values())
    ]


def _forgets_scale(module: torch.nn.Module, matrix: torch.Tensor) -> bool:
    """Whether a module gives the same for a larger input, as a norm with a gain for each head does."""
    for shape in ((1, 2, matrix.shape[-1]), (1, 2, *matrix.shape)):
        given = noise(torch.Size(shape), matrix.device).to(matrix.dtype)
        try:
            with torch.no_grad():
                out = module(torch.cat([given, given * 16]))
        except (TypeError, RuntimeError, ValueError, AttributeError, IndexError, KeyError):
            continue
        if not isinstance(out, torch.Tensor) or out.shape[2:] != given.shape[2:]:
            return False
        return torch.allclose(*out.chunk(2), rtol=1e-2, atol=1e-2)
    return False


@once
def _own(run: Run) -> list[list[str]]:
    """For each block the paths of its attention's projections."""
    return [linear_paths(attention) for attention in attentions(run)]


def _paths(run: Run) -> list[str]:
    return list(dict.fromkeys(path for found in _own(run) for path in found))


@perturbed(lambda run: 2 * len(_paths(run)) + 6)
@contextmanager
def projections(run: Run, batch: Batch, rows: Rows) -> Iterator[Projections]:
    """Rows that perturb the attention's projections, the heads' outputs, and the MLP's up projection."""
    every, own, paths = attentions(run), _own(run), _paths(run)
    found = Projections(own=own)
    for index, path in enumerate(paths):
        found.noise[path], found.scaled[path] = 1 + 2 * index, 2 + 2 * index
    after = 1 + 2 * len(paths)
    found.heads, found.up, found.whole, found.nothing, found.place, found.large = range(after, after + 6)
    found.at = BRIEF // 3
    entering: list[tuple[torch.nn.Module, Change]] = []
    leaving: list[tuple[torch.nn.Module, Change]] = []
    for index, (attention, envoy) in enumerate(zip(every, run.text.envoys, strict=True)):
        if attention is not None:
            entering += [
                (attention._module, rows.align),
                (
                    attention._module,
                    rows.changes(
                        {
                            found.whole: Times(SCALE),
                            found.nothing: Times(0.0),
                            found.place: partial(_noise_at, found.at),
                        }
                    ),
                ),
            ]
            leaving.append((attention._module, rows.keep(found.returned, index)))
            for path in own[index]:
                module = attention._module.get_submodule(path)
                each: dict[int, Change] = {
                    found.noise[path]: noisy,
                    found.scaled[path]: Times(SCALE),
                    found.large: Times(LARGE),
                }
                changes = rows.changes(each)
                leaving += [(module, changes), (module, rows.keep(found.outputs, (index, path)))]
        for mlp in (part(envoy, host) for host in ("mlp", "mlp.shared_experts")):
            if mlp is None:
                continue
            up, down = part(mlp, "up_proj"), part(mlp, "down_proj")
            if up is not None and down is not None:
                entering.append((mlp._module, rows.align))
                leaving += [
                    (up._module, rows.change(found.up, Times(SCALE))),
                    (down._module, rows.keep(found.down, index)),
                ]
    batch.heads.append(rows.change(found.heads, Times(SCALE)))
    with hooks(entering, leaving, alike=True):
        yield found
    found.inside = [tapped.only(rows) for tapped in batch.inside]
    pairs = zip(every, found.inside, strict=True)
    found.taps = [Tapped() if attention is None else tapped for attention, tapped in pairs]


def _noise_at(position: int, row: torch.Tensor) -> torch.Tensor:
    changed = row.clone()
    changed[position] = noisy(row[position])
    return changed
