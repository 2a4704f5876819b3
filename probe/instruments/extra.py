"""What extra forwards are made of: the attentions they look at, the tokens they run on, changes of a row, and a store
that keeps what was measured once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from nnsight.intervention.envoy import Envoy

from ..measure.edits import noise_like
from ..measure.run import Run
from ..wiring.anatomy import BlockAnatomy

Found = TypeVar("Found")
Asked = ParamSpec("Asked")

LENGTH = 32
"""Positions of a prompt that must be longer than any window or chunk of a twin."""

SHORT = 12
"""Positions of a prompt of which several copies run."""

BRIEF = 8
"""Positions of a prompt of which a copy runs for each change."""

FEW = 4
"""Positions of a prompt that is shorter than any window."""

CANNOT = (RuntimeError, IndexError, ValueError, TypeError, AttributeError)
"""What a forward raises that cannot fill or continue a cache."""

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
def layer_types(run: Run) -> list[str]:
    """The type of each block."""
    return run.model.layer_types


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


@once
def accepts(run: Run, name: str) -> bool:
    """Whether the model's forward takes an argument of this name."""
    return name in _taken(run)


@once
def _taken(run: Run) -> frozenset[str]:
    return frozenset(inspect.signature(run.model._module.forward).parameters)


def token_ids(run: Run, length: int, rows: int = 1, seed: int = 0) -> torch.Tensor:
    """Token ids without special ones: ``[rows, length]``, the same in every row."""
    return _ids(run, length, seed).repeat(rows, 1)


@once
def _ids(run: Run, length: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    size = run.model.vocab_size
    return torch.randint(size // 5, size * 4 // 5, (1, length), generator=generator).to(run.model.device)


def forward(run: Run, ids: torch.Tensor, **inputs: Any) -> Any:
    """One forward of the text model without its head; without a cache, unless ``inputs`` say otherwise."""
    with torch.no_grad():
        return decoder(run)(**{"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False, **inputs})


def moved(tensor: torch.Tensor, row: int, base: int = 0) -> float:
    """Largest difference between a row and the base row, relative to the base row's largest number."""
    scale = float(tensor[base].float().abs().max())
    return float((tensor[row].float() - tensor[base].float()).abs().max()) / max(scale, 1e-30)


def moves(tensor: torch.Tensor) -> list[float]:
    """The same for every row against the first."""
    plain = tensor.float()
    changes = (plain - plain[:1]).flatten(1).abs().amax(1)
    found: list[float] = (changes / plain[0].abs().max().clamp_min(1e-30)).tolist()
    return found


def noisy(row: torch.Tensor) -> torch.Tensor:
    """A row with noise of its own spread added."""
    return row + noise(row.shape, row.device).to(row.dtype) * row.float().std().to(row.dtype)


@lru_cache(maxsize=32)
def noise(shape: torch.Size, device: torch.device) -> torch.Tensor:
    """Noise of unit scale, kept for the shapes that come again."""
    return noise_like(torch.empty(shape, device=device))
