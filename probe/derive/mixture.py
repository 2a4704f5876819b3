"""The values inside a mixture of experts: the router's logits and choice, the weights, the routed and shared parts."""

from __future__ import annotations

import torch

from . import mlp, slots
from .declare import Declared, HostDraft
from .find import Found, find
from .modules import entering, last_projection
from .routing import Routing, route
from .sites import Recording, Site
from .summands import before_norm, parts, view, whole

DESCRIPTIONS = {
    "router_logits": "The router's logits, one per expert, before the scoring",
    "expert_weights": "The weight each selected expert's output is scaled by",
    "expert_indices": "The expert each routing slot sends the token to",
    "expert_outputs": "Each routing slot's weighted expert output",
    "routed_output": "The routed experts' combined output",
    "shared_expert_output": "The shared expert's output",
}


def describe(
    model: torch.nn.Module, recording: Recording, host: HostDraft, within: str, added: torch.Tensor
) -> list[HostDraft]:
    """Fill in a mixture's values and sizes.

    Args:
        host: the mixture.
        within: path of the module that holds router and experts: the host, or the block where they stand beside it.
        added: ``[batch, seq, hidden_size]``, what the mixture adds before any norm; tokens may be flat.

    Returns:
        The hosts inside: the shared expert, where there is one.
    """
    added = _by_token(recording, within, added)
    routing = route(model, recording, within, added.shape[:2])
    if routing is None:
        return []
    added = before_norm(model, recording, within, added)
    host.sizes["top_k"] = routing.top_k
    host.sizes["num_experts"] = routing.num_experts
    _router(recording, host, within, routing)
    _choice(recording, host, within, routing)
    shared, routed = parts(model, recording, within, routing, added)
    _put(host, "routed_output", "Residual", routed, _no_routed(routing))
    _slots(recording, host, within, routing, None if routed is None else view(routed.site, added))
    return [] if shared is None else _shared(model, recording, host, within, shared, added)


def _put(host: HostDraft, name: str, layout: str, found: Found | None, reason: str, **options: object) -> None:
    described = str(options.pop("description", DESCRIPTIONS[name]))
    if found is None:
        host.values[name] = Declared(layout, None, described, reason=reason)
    else:
        host.values[name] = Declared(layout, found.at(host.path), described, found.held, tuple(options.items()))


def _by_token(recording: Recording, within: str, added: torch.Tensor) -> torch.Tensor:
    """What is added with batch and tokens on axes of their own, as what comes in has them."""
    taken = entering(recording, within)
    return added if added.ndim == 3 or taken is None else added.reshape(taken.tensor.shape)


def _router(recording: Recording, host: HostDraft, within: str, routing: Routing) -> None:
    logits = routing.logits
    if logits is None:
        _put(host, "router_logits", "RouterLogits", None, routing.no_logits)
        return
    width = int(logits.output.shape[-1])
    more = width - routing.num_experts
    described = DESCRIPTIONS["router_logits"]
    if more:
        described = f"The router's logits before the scoring: {routing.num_experts} of the experts, and {more} more"
    tensor = logits.output.reshape(*routing.size, width)
    single = {site.module for site in recording.below(within) if whole(site)}

    def prefer(site: Site) -> float:
        """The linear layer's own output, where it is one: what comes later may be a copy that nothing reads."""
        if not site.steps:
            return 1e9 if site.module == logits.inside[-1] and site.module in single else -1e9 - site.order
        return -1e6 * len(site.steps) - site.order

    sites = [site for site in recording.below(within) if site.side == "output"]
    found = find(recording, sites, tensor, "RouterLogits", prefer=prefer)
    layer = logits.inside[-1].rpartition(".")[2]
    reason = f"No module or operation that runs once gives the logits that {layer} makes, and nothing else."
    _put(host, "router_logits", "RouterLogits", found, reason, description=described)


def _choice(recording: Recording, host: HostDraft, within: str, routing: Routing) -> None:
    for name, layout, site, tensor in (
        ("expert_weights", "ExpertWeights", routing.weights, routing.weight_tensor),
        ("expert_indices", "ExpertIndices", routing.indices, routing.index_tensor),
    ):
        found = None
        if tensor is not None:
            sites = (
                [site] if site is not None else [s for s in recording.below(within) if s.steps and s.side == "output"]
            )
            found = find(recording, sites, tensor, layout, prefer=lambda s: -s.order)
        reason = "No operation that runs once gives one number for each slot of a token."
        if routing.dense is not None:
            reason = f"{_dense(routing)}: no weight belongs to a slot."
        _put(host, name, layout, found, reason)


def _dense(routing: Routing) -> str:
    return f"Every expert gets a score for every token, zero where it was not chosen ({routing.dense})"


def _slots(recording: Recording, host: HostDraft, within: str, routing: Routing, routed: torch.Tensor | None) -> None:
    """Each slot's output: the operation whose slots sum up to what the experts give."""
    if routing.dense is not None:
        _put(host, "expert_outputs", "ExpertOutputs", None, f"{_dense(routing)}: no output belongs to a slot.")
        return
    found, reason = slots.outputs(recording, routing, within, routed)
    axes = None if found is None else slots.axes(found)
    placed = None if found is None or axes is None else Found(found, axes, 0 if axes.plain else 1)
    _put(host, "expert_outputs", "ExpertOutputs", placed, reason)


def _no_routed(routing: Routing) -> str:
    if routing.experts is None:
        return "No operation that runs once gives what the experts add, apart from all else that the module adds."
    return "What the experts give is added up without a tensor of its own in the stream's size."


def _shared(
    model: torch.nn.Module, recording: Recording, host: HostDraft, within: str, shared: Site, added: torch.Tensor
) -> list[HostDraft]:
    """The shared expert's output and, where it is a module of its own, its interior."""
    found = find(recording, [shared], view(shared, added), "Residual")
    # The sum may be added into the shared expert's tensor in place, so the value is a copy.
    _put(host, "shared_expert_output", "Residual", found, "", copy=True)
    if not shared.module.startswith(f"{host.path}."):
        return []
    if not any(True for _ in model.get_submodule(shared.module).children()):
        if last_projection(model, recording, shared.module, added.shape[-1]) is not None:
            mlp.describe(model, recording, host, shared.module, within)
        return []
    native = shared.module.removeprefix(f"{host.path}.")
    host.aliases[native] = "shared_experts"
    inner = HostDraft(shared.module, "mlp", f"{host.name}.shared_experts", f"{host.native}.{native}")
    mlp.describe(model, recording, inner, last_projection(model, recording, shared.module, added.shape[-1]))
    return [inner] if inner.values else []
