"""What a mixture adds, in its parts: the routed experts' sum and, beside it, a shared expert's output."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ..wiring.norms import is_norm
from .find import Found, find
from .modules import entering
from .routing import Routing, tolerance
from .sites import Recording, Site

CLOSE = 1e-4
"""Largest residue, relative to what is explained, at which a sum counts as found."""


def view(site: Site, like: torch.Tensor) -> torch.Tensor:
    """What stood at a site, in the shape of another tensor of as many numbers."""
    return site.tensor.reshape(like.shape)


def whole(site: Site) -> bool:
    """Whether a module gives one tensor and nothing beside it."""
    return not site.steps and site.side == "output" and site.index == ()


def before_norm(model: torch.nn.Module, recording: Recording, within: str, added: torch.Tensor) -> torch.Tensor:
    """What the mixture's own last norm takes, where it ends with one."""
    for site in recording.below(within):
        if site.steps or site.side != "output" or site.module == within or site.tensor.numel() != added.numel():
            continue
        if any(p.ndim > 1 for p in model.get_submodule(site.module).parameters()):
            continue
        given = entering(recording, site.module)
        if given is not None and given.tensor.shape == site.tensor.shape and torch.equal(view(site, added), added):
            return view(given, added)
    return added


def parts(
    model: torch.nn.Module, recording: Recording, within: str, routing: Routing, added: torch.Tensor
) -> tuple[Site | None, Found | None]:
    """The shared expert's output, and the routed output: the two that make up what is added."""
    sums = [routing.given] if routing.given is not None else []
    if routing.experts is None:
        sums = [site for site in recording.below(within) if _stands_for_routed(recording, routing, site, added)]
    elif sums and sums[0].tensor.numel() != added.numel():
        sums = [s for s in [_projected(recording, within, sums[0], added)] if s is not None]
    placed = [find(recording, [site], view(site, added), "Residual") for site in sums]
    for found in sorted((place for place in placed if place is not None), key=lambda place: place.rank):
        site = found.site
        shared = _beside(recording, within, routing, site, added) or _beside_normed(
            model, recording, within, routing, site, added
        )
        if shared is not None or routing.experts is not None or _constant(added, view(site, added)):
            return shared, found
    return None, None


def _stands_for_routed(recording: Recording, routing: Routing, site: Site, added: torch.Tensor) -> bool:
    later = site.order > routing.first and site.side == "output" and bool(site.steps) and site.called is not None
    return later and site.tensor.is_floating_point() and site.tensor.numel() == added.numel() and recording.once(site)


def _constant(added: torch.Tensor, routed: torch.Tensor) -> bool:
    """Whether what is left beside the routed part is the same for every token: a bias."""
    rows = (added.float() - routed.float()).flatten(0, 1)
    return float((rows - rows[0]).abs().max()) <= tolerance(added, CLOSE) * float(added.abs().max())


def _projected(recording: Recording, within: str, given: Site, added: torch.Tensor) -> Site | None:
    """What a projection makes of experts that work in a narrower width."""
    for site in recording.below(within):
        if not site.steps and site.side == "output" and site.order > given.order and site.module != within:
            taken = entering(recording, site.module)
            if site.tensor.numel() == added.numel() and taken is not None and torch.equal(taken.tensor, given.tensor):
                return site
    return None


def _beside(recording: Recording, within: str, routing: Routing, routed: Site, added: torch.Tensor) -> Site | None:
    """The outermost module beside the experts whose output, gated or not, is the other part of what is added."""
    found = [
        site
        for site in recording.below(within)
        if whole(site)
        and site.tensor.is_floating_point()
        and site.tensor.numel() == added.numel()
        and site.module not in (within, routed.module if not routed.steps else None)
        and not (routing.experts and f"{site.module}.".startswith(f"{routing.experts}."))
        and recording.once(site)
        and _explains(added, view(routed, added), view(site, added))
    ]
    return _outermost(found)


def _outermost(sites: Iterable[Site]) -> Site | None:
    return min(sites, key=lambda site: (site.module.count("."), site.order), default=None)


def _beside_normed(
    model: torch.nn.Module, recording: Recording, within: str, routing: Routing, routed: Site, added: torch.Tensor
) -> Site | None:
    """The same, where both parts pass a norm of their own before they are added."""
    for normed in recording.below(within):
        taken = entering(recording, normed.module) if whole(normed) and normed.order > routed.order else None
        if taken is None or not torch.equal(taken.tensor.flatten(), routed.tensor.flatten()):
            continue
        if normed.tensor.numel() != added.numel() or not is_norm(model.get_submodule(normed.module), added.shape[-1]):
            continue
        other = _beside(recording, within, routing, normed, added)
        given = entering(recording, other.module) if other is not None else None
        if given is None or other is None or not is_norm(model.get_submodule(other.module), added.shape[-1]):
            continue
        return _outermost(
            site
            for site in recording.below(within)
            if whole(site) and torch.equal(site.tensor.flatten(), given.tensor.flatten())
        )
    return None


def _explains(added: torch.Tensor, routed: torch.Tensor, shared: torch.Tensor) -> bool:
    """Whether ``added`` is a number times ``routed`` plus, for each token, a number times ``shared``, neither nil."""
    close = tolerance(added, CLOSE)
    added, routed, shared = added.float(), routed.float(), shared.float()
    length = shared.square().sum(-1, keepdim=True).clamp_min(1e-30)

    def apart(tensor: torch.Tensor) -> torch.Tensor:
        return tensor - (tensor * shared).sum(-1, keepdim=True) / length * shared

    one, other = apart(added), apart(routed)
    factor = float((one * other).sum() / other.square().sum().clamp_min(1e-30))
    scale = float(added.abs().max())
    left = float((one - factor * other).abs().max())
    alone = float((added - factor * routed).abs().max())
    return left <= close * scale and alone > 3 * close * scale and abs(factor) > 1e-3
