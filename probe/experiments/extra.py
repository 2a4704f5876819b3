"""Extra forwards that several experiments share, each run at most once for a :class:`~probe.measure.run.Run`.

They run the text model without its head on plain token ids. A batch holds one perturbation a row; where a row is
aligned, a module is called with row 0's input on every row, so that a difference behind it has its cause inside the
module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from nnsight.intervention.envoy import Envoy

from ..measure.anatomy import BlockAnatomy
from ..measure.edits import noise_like
from ..measure.run import Run
from .tap import Change, Rows, Tap, Tapped, hooks

Found = TypeVar("Found")
Asked = ParamSpec("Asked")

LENGTH = 40
"""Positions of a prompt that must be longer than any window or chunk of a twin."""

SHORT = 12
"""Positions of a prompt of which many copies run."""


SCALE = 4.0
"""What a scaled row multiplies."""


def once(measure: Callable[Concatenate[Run, Asked], Found]) -> Callable[Concatenate[Run, Asked], Found]:
    """Keeps what was measured on the run, for each of what was asked, so that experiments share it."""

    @wraps(measure)
    def kept(run: Run, /, *asked: Asked.args, **named: Asked.kwargs) -> Found:
        store: dict[Any, Any] = run.__dict__.setdefault("_extra", {})
        key = (measure, *asked, *named.items())
        if key not in store:
            store[key] = measure(run, *asked, **named)
        found: Found = store[key]
        return found

    return kept


def part(envoy: Envoy, path: str) -> Envoy | None:
    """The envoy under a standard path, or None."""
    found: Any = envoy
    for step in path.split("."):
        found = getattr(found, step, None)
        if not isinstance(found, Envoy):
            return None
    return found


@once
def attention_hosts(run: Run) -> list[str | None]:
    """For each block the standard path of its attention, the first where it has several; None where it has none."""
    if not run.readings:
        return ["self_attn" if part(envoy, "self_attn") is not None else None for envoy in run.text.envoys]
    served = {(key.block, key.host) for key in run.readings if key.name == "attention_probabilities"}
    inside = [(index, host) for index, host in sorted(served, key=str) if host.startswith(run.text.label)]
    found = {index: host.removeprefix(run.text.label).lstrip(".") for index, host in reversed(inside)}
    if not run.text.anatomy:
        return [found.get(index) for index in range(len(run.text))]
    kinds = [{c.host: c.term.kind for c in block} for block in run.text.contributions]
    adding = [next((host for host, kind in block.items() if kind == "attention"), None) for block in kinds]
    return [found.get(index) if host is None else host for index, host in enumerate(adding)]


@once
def attentions(run: Run) -> list[Envoy | None]:
    """The attention of each block, whatever a module is called: the one that a contribution comes from, else one on the
    way into another sublayer; None where there is none.
    """
    if not run.text.anatomy:
        return [part(envoy, "self_attn") for envoy in run.text.envoys]
    hosts = attention_hosts(run) if run.readings else [None] * len(run.text)
    return [_attention(*block) for block in zip(run.text.envoys, run.text.anatomy, hosts, strict=True)]


def _attention(envoy: Envoy, anatomy: BlockAnatomy, host: str | None) -> Envoy | None:
    term = next((term for term in anatomy.terms if term.kind == "attention" and term.hosts), None)
    if term is not None:
        return part(envoy, term.hosts[-1])
    return None if host is None else part(envoy, host)


@once
def decoder(run: Run) -> torch.nn.Module:
    """The innermost native module that takes token ids and runs the text model's blocks."""
    path = run.model.layers._module
    name = next(name for name, module in run.model._module.named_modules() if module is path)
    while name:
        name = name.rpartition(".")[0]
        module = run.model._module.get_submodule(name)
        if "input_ids" in inspect.signature(module.forward).parameters:
            return module
    return run.model._module


def token_ids(run: Run, length: int, rows: int = 1, seed: int = 0) -> torch.Tensor:
    """Token ids without special ones: ``[rows, length]``, the same in every row."""
    generator = torch.Generator().manual_seed(seed)
    size = run.model.vocab_size
    ids = torch.randint(size // 5, size * 4 // 5, (1, length), generator=generator)
    return ids.repeat(rows, 1).to(run.model.device)


def forward(run: Run, ids: torch.Tensor, **inputs: Any) -> Any:
    """One forward of the text model without its head; without a cache, unless ``inputs`` say otherwise."""
    with torch.no_grad():
        return decoder(run)(**{"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False, **inputs})


def moved(tensor: torch.Tensor, row: int, base: int = 0) -> float:
    """Largest difference between a row and the base row, relative to the base row's largest number."""
    scale = float(tensor[base].float().abs().max())
    return float((tensor[row].float() - tensor[base].float()).abs().max()) / max(scale, 1e-30)


@dataclass
class Projections:
    """What an attention's queries, keys, values and output do when one of its projections is perturbed.

    ``noise`` and ``scaled`` give, for a projection's path below the attention, the row in which noise was added to its
    output, and the row in which it was multiplied; ``whole`` is the row in which the attention's input was multiplied,
    and ``nothing`` the one in which it is zero. ``outputs`` holds what each projection returned, per block.
    """

    taps: list[Tapped]
    noise: dict[str, int] = field(default_factory=dict)
    scaled: dict[str, int] = field(default_factory=dict)
    heads: int = 0
    up: int = 0
    whole: int = 0
    nothing: int = 0
    place: int = 0
    at: int = 0
    own: list[list[str]] = field(default_factory=list)
    outputs: dict[tuple[int, str], torch.Tensor] = field(default_factory=dict)
    down: dict[int, torch.Tensor] = field(default_factory=dict)
    returned: dict[int, torch.Tensor] = field(default_factory=dict)
    """What each attention returned."""


def linear_paths(attention: Envoy | None) -> list[str]:
    """Paths of the modules below an attention that hold a matrix, and are no norm."""
    if attention is None:
        return []
    return [
        path
        for path, module in attention._module.named_modules()
        if any(p.ndim == 2 and not _forgets_scale(module, p) for p in module.parameters(recurse=False))
    ]


def _forgets_scale(module: torch.nn.Module, matrix: torch.Tensor) -> bool:
    """Whether a module gives the same for a larger input, as a norm with a gain for each head does."""
    for shape in ((1, 2, matrix.shape[-1]), (1, 2, *matrix.shape)):
        given = noise_like(torch.empty(shape)).to(matrix.device, matrix.dtype)
        try:
            with torch.no_grad():
                out = module(torch.cat([given, given * 16]))
        except (TypeError, RuntimeError, ValueError, AttributeError, IndexError, KeyError):
            continue
        return isinstance(out, torch.Tensor) and torch.allclose(*out.chunk(2), rtol=1e-2, atol=1e-2)
    return False


@once
def projections(run: Run) -> Projections:
    """One forward whose rows perturb the attention's projections, the heads' outputs, and the MLP's up projection."""
    every = attentions(run)
    own = [linear_paths(attention) for attention in every]
    paths = list(dict.fromkeys(path for found in own for path in found))
    found = Projections([], own=own)
    for index, path in enumerate(paths):
        found.noise[path], found.scaled[path] = 1 + 2 * index, 2 + 2 * index
    after = 1 + 2 * len(paths)
    found.heads, found.up, found.whole, found.nothing, found.place = range(after, after + 5)
    length = SHORT
    found.at = length // 3
    rows = Rows(found.place + 1)
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
                            found.whole: times(SCALE),
                            found.nothing: times(0.0),
                            found.place: partial(_noise_at, found.at),
                        }
                    ),
                ),
            ]
            leaving.append((attention._module, rows.keep(found.returned, index)))
            for path in own[index]:
                module = attention._module.get_submodule(path)
                changes = rows.changes({found.noise[path]: noisy, found.scaled[path]: times(SCALE)})
                leaving += [(module, changes), (module, rows.keep(found.outputs, (index, path)))]
        for mlp in (part(envoy, host) for host in ("mlp", "mlp.shared_experts")):
            if mlp is None:
                continue
            up, down = part(mlp, "up_proj"), part(mlp, "down_proj")
            if up is not None and down is not None:
                entering.append((mlp._module, rows.align))
                leaving += [
                    (up._module, rows.change(found.up, times(SCALE))),
                    (down._module, rows.keep(found.down, index)),
                ]
    tap = Tap(every, heads=rows.change(found.heads, times(SCALE)))
    with hooks(entering, leaving, alike=True), tap:
        forward(run, token_ids(run, length, rows.total))
    found.taps = tap.blocks
    return found


def noisy(row: torch.Tensor) -> torch.Tensor:
    return row + noise_like(row).to(row.dtype) * row.float().std().to(row.dtype)


def _noise_at(position: int, row: torch.Tensor) -> torch.Tensor:
    changed = row.clone()
    changed[position] = noisy(row[position])
    return changed


def times(factor: float) -> Change:
    return lambda row: row * factor
