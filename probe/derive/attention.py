"""The values inside an attention, located by what they are.

Where the forward calls transformers' attention interface, its arguments are the queries, keys and values. Elsewhere the
product that a softmax follows has queries and keys as its factors, and the product that takes the softmax's rows has
the values. The output projection is the module whose output becomes the contribution.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from ..values.hosts import Attention
from .declare import Declared, HostDraft
from .find import Found, find, location
from .modules import entering, has_matrix
from .sites import Event, Recording, Site

PRODUCTS = frozenset({"matmul", "bmm", "baddbmm", "einsum"})
FUSED = "scaled_dot_product_attention"
HIDDEN = -1e4


@dataclass
class Interior:
    """The tensors of one attention, each in the axes of its layout, as far as the run showed them."""

    queries: torch.Tensor | None = None
    keys: torch.Tensor | None = None
    values: torch.Tensor | None = None
    scores: torch.Tensor | None = None
    pattern: torch.Tensor | None = None
    outputs: torch.Tensor | None = None
    softmax: Event | None = None
    uses: Event | None = None
    """The product with the values."""
    called: Site | None = None
    """The call of the shared interface."""


def describe(model: torch.nn.Module, recording: Recording, host: HostDraft, batch: int, projection: str | None) -> None:
    """Fill in an attention's values, sizes and names.

    Args:
        host: its path; its values are added to.
        batch: rows of the recorded forward.
        projection: native path, from the model, of the output projection.
    """
    sites = recording.below(host.path)
    interior = _interior(recording, host.path, sites, batch)
    _declare(recording, host, sites, interior)
    _premix(model, recording, host, interior, projection)
    _sizes(host, interior)


def _interior(recording: Recording, path: str, sites: list[Site], batch: int) -> Interior:
    found = Interior()
    events = recording.inside(path)
    softmaxes = [event for event in events if event.name == "softmax" and event.output.ndim >= 3]
    for softmax in softmaxes:
        uses = next((e for e in events if e.order > softmax.order and e.name in PRODUCTS and _takes(e, softmax)), None)
        if uses is not None:
            found.softmax, found.uses = softmax, uses
            break
    found.called = _interface_call(sites)
    if found.called is not None:
        found.queries, found.keys, found.values = (_argument(sites, found.called, at) for at in (1, 2, 3))
        found.outputs = _result(sites, found.called)
    elif found.uses is not None:
        _own_arithmetic(events, found, batch)
    else:
        fused = next((event for event in events if event.name == FUSED), None)
        if fused is not None and len(fused.inputs) >= 3:
            found.queries, found.keys, found.values = fused.inputs[:3]
            found.outputs = fused.output.transpose(1, 2)
    if found.softmax is not None and found.uses is not None:
        pattern = _left(found.uses)
        if pattern is not None:
            found.pattern = _heads(pattern, batch)
            scores = found.softmax.inputs[0]
            found.scores = _heads(scores[..., : pattern.shape[-1]], batch)
            if found.scores is not None and scores.shape[-1] > pattern.shape[-1]:
                found.scores = _unshifted(sites, found.softmax, found.scores)
    return found


def _unshifted(sites: list[Site], softmax: Event, scores: torch.Tensor) -> torch.Tensor:
    """Scores before each row was shifted by a number, which changes no softmax and keeps a sink's column apart."""
    seen = scores > HIDDEN
    for site in reversed(sites):
        if site.order < softmax.order and site.steps and site.tensor.shape == scores.shape:
            shift = torch.where(seen, site.tensor - scores, torch.nan)
            spread = shift.nan_to_num(-torch.inf).amax(-1) - shift.nan_to_num(torch.inf).amin(-1)
            if float(spread.abs().max()) <= 1e-4 and torch.equal(site.tensor > HIDDEN, seen):
                return site.tensor
    return scores


def _takes(event: Event, softmax: Event) -> bool:
    """Whether a product takes the softmax's rows, all columns or all but a sink's."""
    rows = softmax.output
    return any(
        item.ndim >= 3
        and item.shape[-2] == rows.shape[-2]
        and item.shape[-1] in (rows.shape[-1], rows.shape[-1] - 1)
        and item.numel() * rows.shape[-1] == rows.numel() * item.shape[-1]
        and bool((item >= -1e-6).all())
        for item in event.inputs
    )


def _left(event: Event) -> torch.Tensor | None:
    """The first factor of a product; the summand of a baddbmm is none."""
    factors = event.inputs[1:] if event.name == "baddbmm" else event.inputs
    return factors[0] if factors else None


def _right(event: Event) -> torch.Tensor | None:
    factors = event.inputs[1:] if event.name == "baddbmm" else event.inputs
    return factors[1] if len(factors) > 1 else None


def _own_arithmetic(events: list[Event], found: Interior, batch: int) -> None:
    softmax, uses = found.softmax, found.uses
    if softmax is None or uses is None or uses.name == "einsum":
        return
    values = _right(uses)
    found.values = _heads(values, batch)
    outputs = _heads(uses.output, batch)
    found.outputs = None if outputs is None else outputs.transpose(1, 2)
    scores = [
        event
        for event in events
        if event.order < softmax.order
        and event.name in PRODUCTS - {"einsum"}
        and event.output.numel() == softmax.output.numel()
        and event.output.shape[-1] == softmax.output.shape[-1]
    ]
    if scores:
        found.queries = _heads(_left(scores[-1]), batch)
        keys = _heads(_right(scores[-1]), batch)
        found.keys = None if keys is None else keys.transpose(-1, -2)


def _heads(tensor: torch.Tensor | None, batch: int) -> torch.Tensor | None:
    """A tensor with batch and heads on axes of their own: ``[batch, heads, …, …]``."""
    if tensor is None:
        return None
    if tensor.ndim == 3 and tensor.shape[0] % batch == 0:
        return tensor.unflatten(0, (batch, -1))
    return tensor if tensor.ndim == 4 and tensor.shape[0] == batch else None


def _interface_call(sites: Iterable[Site]) -> Site | None:
    """The first call of a function that takes a module, queries, keys and values: the shared interface."""
    for site in sites:
        if site.side == "inputs" and len(site.steps) == 1 and site.index == (0, 1) and _is_interface(site.called):
            return site
    return None


def _is_interface(called: Callable[..., object]) -> bool:
    try:
        names = list(inspect.signature(called).parameters)
    except (TypeError, ValueError):
        return False
    return names[1:4] == ["query", "key", "value"]


def _argument(sites: Iterable[Site], call: Site, position: int) -> torch.Tensor | None:
    return next((s.tensor for s in sites if s.place == call.place and s.index == (0, position)), None)


def _result(sites: Iterable[Site], call: Site) -> torch.Tensor | None:
    place = (call.module, call.steps, "output")
    return next((s.tensor for s in sites if s.place == place and s.index in ((0,), ())), None)


def _declare(recording: Recording, host: HostDraft, sites: list[Site], interior: Interior) -> None:
    last = interior.uses.order if interior.uses is not None else float("inf")
    entering = interior.softmax.order if interior.softmax is not None else last

    def put(name: str, layout: str, tensor: torch.Tensor | None, until: float, **options: object) -> None:
        found = None
        if tensor is not None:
            found = _locate(recording, sites, interior, tensor, layout, until)
        described = getattr(Attention, name).description
        if found is None:
            reason = f"In this forward no module or operation that runs once holds {name}."
            host.values[name] = Declared(layout, None, described, reason=reason)
        else:
            host.values[name] = Declared(layout, found.at(host.path), described, found.held, tuple(options.items()))

    put("attention_queries", "Queries", interior.queries, entering, copy=True)
    keys = _unshared(recording, sites, interior.keys, "Keys")
    values = _unshared(recording, sites, interior.values, "Values")
    put("attention_keys", "Keys", keys, entering, copy=True)
    put("attention_values", "Values", values, last, copy=True)
    counts = [int(tensor.shape[1]) for tensor in (keys, values) if tensor is not None and tensor.ndim == 4]
    if counts:  # where only one of them is read before it is repeated, that one tells
        host.sizes["num_kv_heads"] = min(counts)
    put("attention_scores", "Pattern", interior.scores, entering)
    put("attention_probabilities", "Pattern", interior.pattern, last)
    put("attention_head_outputs", "HeadOutputs", interior.outputs, float("inf"))


def _locate(
    recording: Recording, sites: list[Site], interior: Interior, tensor: torch.Tensor, layout: str, until: float
) -> Found | None:
    """The last operation before ``until`` that holds the tensor; the interface's own argument or result first."""
    call = interior.called
    if call is not None and layout != "Pattern":
        own = [s for s in sites if (s.module, s.steps) == (call.module, call.steps)]
        found = find(recording, own, tensor, layout)
        if found is not None:
            return found

    def prefer(site: Site) -> float:
        """The last one before the use; a call before an assignment, whose name says less."""
        return (1e9 if site.called is not None else 0) + site.order if site.order < until else -site.order

    return find(recording, [s for s in sites if s.steps], tensor, layout, prefer=prefer)


def _unshared(recording: Recording, sites: list[Site], tensor: torch.Tensor | None, layout: str) -> torch.Tensor | None:
    """Keys or values before shared heads are repeated for the queries they serve, where a site holds them so."""
    if tensor is None or tensor.ndim != 4:
        return tensor
    heads = tensor.shape[1]
    for groups in range(heads, 1, -1):
        if heads % groups == 0:
            first = tensor[:, ::groups]
            if torch.equal(first.repeat_interleave(groups, dim=1), tensor):
                return first if find(recording, sites, first, layout) is not None else tensor
    return tensor


def _premix(
    model: torch.nn.Module, recording: Recording, host: HostDraft, interior: Interior, projection: str | None
) -> None:
    """What the output projection takes; of a projection in several steps, what the first one takes."""
    outputs = interior.outputs
    if outputs is None:
        return
    taken = entering(recording, projection) if projection is not None else None
    if taken is None or taken.tensor.numel() != outputs.numel():
        taken = _first_step(model, recording, host, outputs, taken)
    elif projection is not None and projection.startswith(f"{host.path}."):
        host.aliases[projection.removeprefix(f"{host.path}.")] = "o_proj"
    described = str(Attention.attention_premix.description)
    if taken is None:
        reason = "In this forward no module takes the heads' outputs side by side."
        host.values["attention_premix"] = Declared("HeadOutputs", None, described, reason=reason)
        return
    side_by_side = outputs.flatten(-2)
    axes = None
    if taken.tensor.shape != side_by_side.shape:
        axes = "(batch seq) num_heads head_dim" if taken.tensor.ndim == 3 else None
        if axes is None and taken.tensor.ndim != 4:
            return
    host.values["attention_premix"] = Declared("HeadOutputs", location(taken, host.path), described, axes)


def _first_step(
    model: torch.nn.Module, recording: Recording, host: HostDraft, outputs: torch.Tensor, last: Site | None
) -> Site | None:
    """The input of a linear layer before the last one, of as many numbers as the heads give, side by side."""
    until = float("inf") if last is None else last.order
    steps = [
        site
        for site in recording.below(host.path)
        if not site.steps
        and site.side == "inputs"
        and site.order <= until
        and site.tensor.shape == outputs.flatten(-2).shape
        and has_matrix(model.get_submodule(site.module))
        and recording.once(site)
    ]
    attends = interior_order(recording, host.path)
    after = [site for site in steps if site.order > attends]
    return after[0] if after else None


def interior_order(recording: Recording, path: str) -> float:
    """When the last softmax or fused kernel inside a module ran."""
    mixes = [event.order for event in recording.inside(path) if event.name in ("softmax", FUSED)]
    return max(mixes, default=float("inf"))


def _sizes(host: HostDraft, interior: Interior) -> None:
    for name, tensor, axis in (
        ("num_heads", interior.queries, 1),
        ("qk_head_dim", interior.queries, 3),
        ("head_dim", interior.values, 3),
    ):
        if tensor is not None and tensor.ndim == 4:
            host.sizes[name] = int(tensor.shape[axis])
