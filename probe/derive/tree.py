"""The parts of a model around its blocks: the embedding, the final norm, the head, and what is done past the head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from ..values.root import Root
from ..wiring.norms import is_norm
from .declare import Declared, Values
from .modules import entering, leaving
from .sites import Recording, Site

EXACT = 1e-5
"""Largest difference, of the largest number, at which two tensors count as the same in float32."""

ROUNDINGS = 3
"""So many roundings stand between the head's output and the logits: a quotient, its tanh, a product."""


def blocks(model: torch.nn.Module) -> tuple[str, torch.nn.ModuleList]:
    """Path and list of the decoder's blocks: of the outermost module lists, the one that holds most parameters.

    Raises:
        LookupError: the model has no list of several modules.
    """
    lists = [(path, part) for path, part in model.named_modules() if isinstance(part, torch.nn.ModuleList)]
    lists = [(path, part) for path, part in lists if len(part) > 1]
    native: Any = model
    decoder = path_of(model, native.get_decoder()) or ""
    if not lists:
        raise LookupError(f"{type(model).__name__} has no list of blocks")
    inner = [(path, part) for path, part in lists if path.startswith(decoder)]
    return min(inner or lists, key=lambda item: (item[0].count("."), -sum(p.numel() for p in item[1].parameters())))


def path_of(model: torch.nn.Module, wanted: Any) -> str | None:
    return next((path for path, module in model.named_modules() if module is wanted), None)


@dataclass
class Ends:
    """What stands around the blocks.

    Attributes:
        rename: native paths and standard names of the embedding, the final norm and the head.
        root: values of the whole model that are elsewhere than under these names.
        readout: paths of the modules that the last block's output passes through, the head last.
        leaving: what the first of them takes is times the last block's output.
        entering: what the head's input is times the output of the module before it.
    """

    rename: dict[str, str]
    root: Values
    readout: tuple[str, ...] = ()
    leaving: float = 1.0
    entering: float = 1.0


def ends(model: torch.nn.Module, recording: Recording, container: str, last: str) -> Ends:
    """The embedding, the final norm and the head of a model, as far as it has them.

    Args:
        container: path of the list of blocks.
        last: path of the last block.
    """
    native: Any = model
    head = path_of(model, native.get_output_embeddings())
    readout, leaving, factor = _readout(model, recording, container, last, head)
    norm = next((path for path in readout if _is_norm(model, recording, path)), None)
    found = Ends({}, {}, readout, leaving, factor)
    _end(model, found, path_of(model, native.get_input_embeddings()), "embed_tokens", "token_embeddings")
    _end(model, found, head, "lm_head", "lm_head_output")
    if norm is not None:
        _end(model, found, norm, "norm", "final_norm_output")
    once = norm is not None and recording.calls[norm, ()] == 1
    if not once and head is not None:
        declared = _declared("final_norm_output", f"{head}.input")
        if norm is None and not _enters_normed(model, recording, container, head):
            declared = replace(declared, description=UNNORMED if readout == (head,) else ENTERING)
        found.root["final_norm_output"] = declared
    return found


ENTERING = "What lm_head reads"
"""Where no norm was found among the modules before the head."""

UNNORMED = "What lm_head reads: the last block's output, with no norm between"
"""Where the head is called with what the last block gives."""


def _end(model: torch.nn.Module, found: Ends, path: str | None, name: str, value: str) -> None:
    """Name one part; a name that the model has given to another part stays its own, and the value says where it is."""
    if not path:
        reason = "The model has no module that gives it."
        found.root[value] = replace(_declared(value, "output"), at=None, reason=reason)
    elif path != name:
        if hasattr(model, name):
            found.root[value] = _declared(value, f"{path}.output")
        else:
            found.rename[path] = name


def _declared(name: str, at: str) -> Declared:
    value = Root.standard_values()[name]
    return Declared(value.layout.name, at, str(value.description))


def _is_norm(model: torch.nn.Module, recording: Recording, path: str) -> bool:
    given = leaving(recording, path)
    return given is not None and is_norm(model.get_submodule(path), given.tensor.shape[-1])


def _enters_normed(model: torch.nn.Module, recording: Recording, container: str, head: str) -> bool:
    """Whether what the head is called with is the output of a norm outside the blocks, or a multiple of it, whatever
    led to that norm.
    """
    taken = entering(recording, head)
    if taken is None:
        return False
    before = [s for s in recording.sites if s.side == "output" and not s.steps and s.order < taken.order]
    given = [s for s in before if s.module and not s.module.startswith(container)]
    return any(_factor(s.tensor, taken.tensor) and _is_norm(model, recording, s.module) for s in given)


def _readout(
    model: torch.nn.Module, recording: Recording, container: str, last: str, head: str | None
) -> tuple[tuple[str, ...], float, float]:
    """The modules from the last block to the head, each fed with what the one before gave, and the first and the last
    factor.
    """
    gave = [s for s in recording.sites if s.place == (last, (), "output") and s.index in ((), (0,))]
    final = max(gave, key=lambda s: s.order, default=None)
    taken = entering(recording, head) if head else None
    if final is None or taken is None or head is None:
        return (), 1.0, 1.0
    outside = [s for s in recording.sites if not s.steps and not s.module.startswith(container) and s.module != head]
    order, tensor, leaving = final.order, final.tensor, 1.0
    path: list[str] = []
    while True:
        factor = _factor(tensor, taken.tensor)
        if factor is not None:
            return (*path, head), leaving, factor
        step = _next(outside, order, tensor)
        if step is None and not path:
            leaving, tensor = _multiple(outside, order, tensor)
            step = _next(outside, order, tensor)
        if step is None:
            return (), 1.0, 1.0
        path.append(step.module)
        order, tensor = step.order, step.tensor


def _multiple(sites: list[Site], order: int, tensor: torch.Tensor) -> tuple[float, torch.Tensor]:
    """The multiple of the tensor that the first module to take one takes, and what it is times; itself without one."""
    later = [s for s in sites if s.order > order and s.side == "inputs" and s.tensor.is_floating_point()]
    for site in sorted(later, key=lambda s: s.order):
        factor = _factor(tensor, site.tensor)
        if factor:
            return factor, site.tensor
    return 1.0, tensor


def _next(sites: list[Site], order: int, tensor: torch.Tensor) -> Site | None:
    """What the first module that takes the tensor gives."""
    takes = [
        s
        for s in sites
        if s.order > order and s.side == "inputs" and s.tensor.shape == tensor.shape and torch.equal(s.tensor, tensor)
    ]
    if not takes:
        return None
    first = min(takes, key=lambda s: s.order)
    beside = [s for s in sites if s.place == first.place and s.call == first.call and s.tensor.is_floating_point()]
    if len(beside) > 1:  # it takes more than the stream
        return None
    gives = [s for s in sites if s.module == first.module and s.side == "output" and s.order > first.order]
    return min(gives, key=lambda s: s.order, default=None)


def _factor(given: torch.Tensor, taken: torch.Tensor) -> float | None:
    """The number that turns one tensor into the other; None where none does."""
    if given.shape != taken.shape:
        return None
    if torch.equal(given, taken):
        return 1.0
    factor = float((given * taken).sum() / given.square().sum())
    return float(f"{factor:.6g}") if _close(factor * given, taken) else None


def past_head(model: torch.nn.Module, recording: Recording, logits: torch.Tensor) -> tuple[float, float | None]:
    """``(scale, cap)`` of what turns the head's output into the logits: ``scale * x``, or ``cap * tanh(x / cap)``.

    Raises:
        LookupError: the logits are neither the head's output, nor a multiple of it, nor a softcap of it.
    """
    native: Any = model
    head = path_of(model, native.get_output_embeddings())
    site = leaving(recording, head) if head else None
    if site is None:
        return 1.0, None
    given = site.tensor.double().reshape(-1)
    taken = logits.double().reshape(-1)
    if given.shape != taken.shape:
        raise LookupError("the logits have another shape than the head's output")
    scale = float((given * taken).sum() / given.square().sum())
    tolerance = max(EXACT, ROUNDINGS * torch.finfo(site.tensor.dtype).eps)
    if _close(scale * given, taken, tolerance):
        return float(f"{scale:.6g}"), None
    cap = _cap(given, taken, tolerance)
    if cap is None:
        raise LookupError("the logits are no multiple and no softcap of the head's output")
    return 1.0, cap


def _close(left: torch.Tensor, right: torch.Tensor, tolerance: float = EXACT) -> bool:
    return float((left - right).abs().max()) <= tolerance * float(right.abs().max())


def _cap(given: torch.Tensor, taken: torch.Tensor, tolerance: float) -> float | None:
    """The cap of a softcap, by bisection on the element that it bends most: the roundest number that fits."""
    at = int(given.abs().argmax())
    x, y = float(given[at].abs()), float(taken[at].abs())
    low, high = y, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        bent = middle * float(torch.tanh(torch.tensor(x / middle, dtype=torch.float64)))
        low, high = (middle, high) if bent < y else (low, middle)
    near = (float(f"{low:.{digits}g}") for digits in range(1, 6))
    return next((cap for cap in near if _close(cap * torch.tanh(given / cap), taken, tolerance)), None)
