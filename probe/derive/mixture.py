"""The values inside a mixture of experts: the router's logits and choice, the weights, the routed and the shared part."""

from __future__ import annotations

import torch

from ..standard.axes import Axes
from ..standard.layouts import LAYOUTS
from . import mlp, slots
from .declare import Declared, HostDraft
from .find import Found, find
from .modules import entering, last_projection, leaving
from .routing import Routing, route
from .sites import Event, Recording, Site

DESCRIPTIONS = {
    "router_logits": "The router's logits, one per expert, before the scoring",
    "expert_weights": "The weight each selected expert's output is scaled by",
    "expert_indices": "The expert each routing slot sends the token to",
    "expert_outputs": "Each routing slot's weighted expert output",
    "routed_output": "The routed experts' combined output",
    "shared_expert_output": "The shared expert's output",
}

CLOSE = 1e-4
"""Largest residue, relative to what is explained, at which a sum counts as found."""


def describe(
    model: torch.nn.Module, recording: Recording, host: HostDraft, within: str, added: torch.Tensor
) -> list[HostDraft]:
    """Fill in a mixture's values and sizes.

    Args:
        host: the mixture.
        within: path of the module that holds router and experts: the host, or the block where they stand beside it.
        added: ``[batch, seq, hidden_size]``, what the mixture adds before any norm.

    Returns:
        The hosts inside: the shared expert, where there is one.
    """
    routing = route(model, recording, within, added.shape[:2])
    if routing is None:
        return []
    added = _before_norm(model, recording, within, added)
    host.sizes["top_k"] = routing.top_k
    host.sizes["num_experts"] = routing.num_experts
    _router(recording, host, within, routing)
    _choice(recording, host, within, routing)
    shared, routed = _parts(recording, within, routing, added)
    _put(host, "routed_output", "Residual", routed, _no_routed(routing))
    _slots(model, recording, host, within, routing, None if routed is None else _view(routed.site, added))
    return [] if shared is None else _shared(model, recording, host, within, shared, added)


def _put(host: HostDraft, name: str, layout: str, found: Found | None, reason: str, **options: object) -> None:
    described = str(options.pop("description", DESCRIPTIONS[name]))
    if found is None:
        host.values[name] = Declared(layout, None, described, reason=reason)
    else:
        host.values[name] = Declared(layout, found.at(host.path), described, found.held, tuple(options.items()))


def _view(site: Site, like: torch.Tensor) -> torch.Tensor:
    return site.tensor.reshape(like.shape)


def _before_norm(model: torch.nn.Module, recording: Recording, within: str, added: torch.Tensor) -> torch.Tensor:
    """What the mixture's own last norm takes, where it ends with one."""
    for site in recording.below(within):
        if site.steps or site.side != "output" or site.module == within or site.tensor.numel() != added.numel():
            continue
        if any(p.ndim > 1 for p in model.get_submodule(site.module).parameters()):
            continue
        given = entering(recording, site.module)
        if given is not None and given.tensor.shape == site.tensor.shape and torch.equal(_view(site, added), added):
            return _view(given, added)
    return added


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
    single = {site.module for site in recording.below(within) if _whole(site)}

    def prefer(site: Site) -> float:
        """The linear layer's own output, where it is one: what comes later may be a copy that nothing reads."""
        own = not site.steps and site.module == logits.inside[-1] and site.module in single
        return (1e9 if own else 0) - site.order - (1e6 * len(site.steps) if site.steps else 2e9 * (not own))

    sites = [site for site in recording.below(within) if site.side == "output"]
    found = find(recording, sites, tensor, "RouterLogits", prefer=prefer)
    reason = f"The logits of {logits.inside[-1].rpartition('.')[2]} are passed on inside one expression without a name."
    _put(host, "router_logits", "RouterLogits", found, reason, description=described)


def _whole(site: Site) -> bool:
    """Whether a module gives one tensor and nothing beside it."""
    return not site.steps and site.side == "output" and site.index == ()


def _choice(recording: Recording, host: HostDraft, within: str, routing: Routing) -> None:
    for name, layout, site, tensor in (
        ("expert_weights", "ExpertWeights", routing.weights, routing.weight_tensor),
        ("expert_indices", "ExpertIndices", routing.indices, routing.index_tensor),
    ):
        found = None
        if tensor is not None:
            sites = [site] if site is not None else [s for s in recording.below(within) if s.steps and s.side == "output"]
            found = find(recording, sites, tensor, layout, prefer=lambda s: -s.order)
        _put(host, name, layout, found, "No operation that runs once gives one number for each slot of a token.")


def _slots(
    model: torch.nn.Module,
    recording: Recording,
    host: HostDraft,
    within: str,
    routing: Routing,
    routed: torch.Tensor | None,
) -> None:
    """Each slot's output: the operation whose slots sum up to what the experts give."""
    found, reason = slots.outputs(recording, routing, within, routed)
    axes = None if found is None else slots.axes(found, routing)
    placed = None if found is None or axes is None else Found(found, axes, 0 if axes.plain else 1)
    _put(host, "expert_outputs", "ExpertOutputs", placed, reason)


def _no_routed(routing: Routing) -> str:
    if routing.experts is None:
        return "No operation that runs once gives what the experts add, apart from all else that the module adds."
    return "What the experts give is added up without a tensor of its own in the stream's size."


def _parts(
    recording: Recording, within: str, routing: Routing, added: torch.Tensor
) -> tuple[Site | None, Found | None]:
    """The shared expert's output, and the routed output: the two that make up what is added."""
    sums = [routing.given] if routing.given is not None else []
    if routing.experts is None:
        sums = [site for site in recording.below(within) if _stands_for_routed(recording, routing, site, added)]
    elif sums and sums[0].tensor.numel() != added.numel():
        sums = [s for s in [_projected(recording, within, sums[0], added)] if s is not None]
    for site in sums:
        routed = _view(site, added)
        shared = _beside(recording, within, routing, site, added)
        if shared is not None or routing.experts is not None or _constant(added - routed):
            return shared, find(recording, [site], routed, "Residual")
    return None, None


def _stands_for_routed(recording: Recording, routing: Routing, site: Site, added: torch.Tensor) -> bool:
    later = site.order > routing.first and site.side == "output" and bool(site.steps) and site.called is not None
    return later and site.tensor.is_floating_point() and site.tensor.numel() == added.numel() and recording.once(site)


def _constant(rest: torch.Tensor) -> bool:
    """Whether what is left is the same for every token: a bias."""
    rows = rest.flatten(0, 1)
    return float((rows - rows[0]).abs().max()) <= CLOSE * float(rows.abs().max().clamp_min(1e-30))


def _projected(recording: Recording, within: str, given: Site, added: torch.Tensor) -> Site | None:
    """What a projection makes of experts that work in a narrower width."""
    for site in recording.below(within):
        if not site.steps and site.side == "output" and site.order > given.order and site.module != within:
            taken = entering(recording, site.module)
            if site.tensor.numel() == added.numel() and taken is not None and torch.equal(taken.tensor, given.tensor):
                return site
    return None


def _beside(
    recording: Recording, within: str, routing: Routing, routed: Site, added: torch.Tensor
) -> Site | None:
    """The outermost module beside the experts whose output, gated or not, is the other part of what is added."""
    found = [
        site
        for site in recording.below(within)
        if _whole(site)
        and site.tensor.is_floating_point()
        and site.tensor.numel() == added.numel()
        and site.module not in (within, routed.module if not routed.steps else None)
        and not (routing.experts and f"{site.module}.".startswith(f"{routing.experts}."))
        and recording.once(site)
        and _explains(added, _view(routed, added), _view(site, added))
    ]
    return min(found, key=lambda site: (site.module.count("."), site.order)) if found else None


def _explains(added: torch.Tensor, routed: torch.Tensor, shared: torch.Tensor) -> bool:
    """Whether ``added`` is a number times ``routed`` plus, for each token, a number times ``shared``, neither nil."""
    length = shared.square().sum(-1, keepdim=True).clamp_min(1e-30)

    def apart(tensor: torch.Tensor) -> torch.Tensor:
        return tensor - (tensor * shared).sum(-1, keepdim=True) / length * shared

    one, other = apart(added.float()), apart(routed.float())
    factor = float((one * other).sum() / other.square().sum().clamp_min(1e-30))
    scale = float(added.abs().max())
    left = float((one - factor * other).abs().max())
    alone = float((added - factor * routed).abs().max())
    return left <= CLOSE * scale and alone > 100 * CLOSE * scale and abs(factor) > 1e-3


def _shared(
    model: torch.nn.Module, recording: Recording, host: HostDraft, within: str, shared: Site, added: torch.Tensor
) -> list[HostDraft]:
    """The shared expert's output and, where it is a module of its own, its interior."""
    found = find(recording, [shared], _view(shared, added), "Residual")
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
