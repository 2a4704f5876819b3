"""How a mixture sends its tokens on: which tensor is the choice, which the weights, and which product scored them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .modules import leaving
from .sites import Event, Recording, Site


@dataclass
class Routing:
    """A mixture's routing, as one forward showed it.

    Attributes:
        size: ``(batch, seq)``.
        index_tensor: ``[batch, seq, top_k]``, the expert of each slot.
        weight_tensor: ``[batch, seq, top_k]``, what scales each slot's output; None where nothing does.
        indices, weights: where the experts are called with them; None where they are not called with any.
        experts: path of the module that is called with the choice.
        given: what that module gives.
        first: order of the first place that holds the choice.
        logits: the product that scored the experts.
        no_logits: why there is none.
        dense: the operation that gives every expert a score for every token, zero where it was not chosen, where the
            experts go by such scores and not by a choice.
    """

    size: torch.Size
    index_tensor: torch.Tensor
    weight_tensor: torch.Tensor | None
    indices: Site | None
    weights: Site | None
    experts: str | None
    given: Site | None
    first: int
    num_experts: int = 0
    logits: Event | None = None
    no_logits: str = ""
    dense: str | None = None

    @property
    def top_k(self) -> int:
        return int(self.index_tensor.shape[-1])


def tolerance(tensor: torch.Tensor, exact: float) -> float:
    """The relative error at which sums of such tensors agree: ``exact`` in float32, more where rounding costs more."""
    return max(exact, 4 * torch.finfo(tensor.dtype).eps)


def route(model: torch.nn.Module, recording: Recording, within: str, size: torch.Size) -> Routing | None:
    """The routing below a module; None where no tokens are sent anywhere."""
    found = _called(recording, within, size) or _chosen(recording, within, size)
    if found is None:
        return None
    found.first = _first(recording, within, found)
    found.logits, found.no_logits = _logits(recording, within, found)
    found.num_experts = _count(model, within, found)
    if found.weight_tensor is None:
        found.dense = _dense(recording, within, found)
    return found


def _called(recording: Recording, within: str, size: torch.Size) -> Routing | None:
    """Experts in one module that is called with each token's choice and its weights."""
    tokens = size[0] * size[1]
    for site in recording.below(within):
        whole = site.tensor.dtype in (torch.int32, torch.int64)
        if site.steps or site.side != "inputs" or not whole or not recording.once(site) or site.tensor.ndim < 2:
            continue
        if site.tensor.numel() != tokens * site.tensor.shape[-1]:
            continue
        beside = [s for s in recording.below(site.module) if s.place == site.place]
        weights = next(
            (s for s in beside if s.tensor.is_floating_point() and s.tensor.shape == site.tensor.shape), None
        )
        if weights is not None:
            given = leaving(recording, site.module)
            slots = (*size, -1)
            held = weights.tensor.reshape(slots)
            return Routing(size, site.tensor.reshape(slots), held, site, weights, site.module, given, site.order)
    return None


def _chosen(recording: Recording, within: str, size: torch.Size) -> Routing | None:
    """Experts not called with a choice: the last top-k among every token's scores, as the run goes on with it."""
    tokens = size[0] * size[1]
    chosen = [
        event
        for event in recording.inside(within)
        if event.name == "topk" and event.extra is not None and event.output.numel() == tokens * event.output.shape[-1]
    ]
    if not chosen or chosen[-1].extra is None:
        return None
    choice = chosen[-1]
    looked_up = _looked_up(recording, within, choice)
    indices = chosen[-1].extra if looked_up is None else looked_up
    slots = (*size, -1)
    weights = next(
        (
            event.output.reshape(slots)
            for event in recording.inside(within)
            if event.order > choice.order
            and event.name in ("softmax", "sigmoid")
            and event.inputs[0].shape == choice.output.shape
            and torch.equal(event.inputs[0], choice.output)
        ),
        None,
    )
    return Routing(size, indices.reshape(slots), weights, None, None, None, None, choice.order)


def _looked_up(recording: Recording, within: str, choice: Event) -> torch.Tensor | None:
    """The integers, one a slot, that a module is called with after the choice: rows of a table of experts."""
    for site in recording.below(within):
        if not site.steps and site.side == "inputs" and site.order > choice.order:
            if site.tensor.dtype == torch.int64 and site.tensor.shape == choice.output.shape:
                return site.tensor
    return None


def _dense(recording: Recording, within: str, routing: Routing) -> str | None:
    for site in recording.below(within):
        held = site.tensor
        if site.steps and site.side == "output" and site.order > routing.first and held.is_floating_point():
            if held.numel() == routing.index_tensor[..., 0].numel() * routing.num_experts and held.ndim >= 2:
                if held.shape[-1] == routing.num_experts and torch.equal(_kept(held, routing), held != 0):
                    return site.steps[-1]
    return None


def _kept(held: torch.Tensor, routing: Routing) -> torch.Tensor:
    """Which of a token's experts were chosen, in the shape of the scores."""
    chosen = torch.zeros(*routing.size, routing.num_experts, dtype=torch.bool, device=held.device)
    return chosen.scatter(-1, routing.index_tensor, True).reshape(held.shape)


def _first(recording: Recording, within: str, routing: Routing) -> int:
    for site in recording.below(within):
        held = site.tensor
        if held.dtype == torch.int64 and held.numel() == routing.index_tensor.numel() and site.side == "output":
            if torch.equal(held.flatten(), routing.index_tensor.flatten()):
                return site.order
    return routing.first


def _logits(recording: Recording, within: str, routing: Routing) -> tuple[Event | None, str]:
    """The last product before the choice that gives every token a number for each expert."""
    tokens = routing.size[0] * routing.size[1]
    products = [
        event
        for event in recording.inside(within)
        if event.order < routing.first
        and event.name in ("linear", "matmul", "addmm")
        and event.output.ndim >= 2
        and event.output.numel() == tokens * event.output.shape[-1]
    ]
    last = int(routing.index_tensor.max())
    wide = [event for event in products if event.output.shape[-1] > last]
    if wide:
        return wide[-1], ""
    if not products:
        return None, "No product in this forward scores the experts."
    width, layer = int(products[-1].output.shape[-1]), products[-1].inside[-1].rpartition(".")[2]
    return None, (
        f"The router has no number for each expert: {layer} gives {width} numbers a token, from which experts "
        f"up to number {last} are chosen."
    )


def _count(model: torch.nn.Module, within: str, routing: Routing) -> int:
    """The experts there are: the leading axis of their weights where these are stacked, else the router's width."""
    at_least = int(routing.index_tensor.max()) + 1
    width = int(routing.logits.output.shape[-1]) if routing.logits is not None else 0
    stacked = [p.shape[0] for p in model.get_submodule(routing.experts or within).parameters() if p.ndim == 3]
    fitting = [count for count in stacked if count >= at_least and (not width or count <= width)]
    if fitting:
        return max(fitting)
    if width:
        return width
    tables = [m for m in model.get_submodule(within).modules() if isinstance(m, torch.nn.Embedding)]
    return max([at_least, *(table.num_embeddings for table in tables)])
