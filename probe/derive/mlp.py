"""The values inside a dense MLP: what its down projection takes, and what its activation function gives."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ..values.hosts import Mlp
from ..wiring.norms import is_norm
from .declare import Declared, HostDraft
from .find import Found, find, location
from .modules import ACTIVATIONS, close, entering
from .sites import Recording, Site


def describe(
    model: torch.nn.Module, recording: Recording, host: HostDraft, projection: str | None, within: str | None = None
) -> None:
    """Fill in an MLP's neurons and activation, and its width.

    Args:
        host: the MLP, or the last linear layer of one that is no module of its own.
        projection: path of the down projection.
        within: path of the module that holds the whole MLP; the host itself where it is not given.
    """
    taken = entering(recording, projection) if projection is not None else None
    if projection is None or taken is None:
        return
    host.sizes["intermediate_size"] = int(taken.tensor.shape[-1])
    axes = "(batch seq) intermediate_size" if taken.tensor.ndim == 2 else None
    host.values["mlp_neurons"] = Declared("Neurons", location(taken, host.path), str(Mlp.mlp_neurons.description), axes)
    if projection.startswith(f"{host.path}."):
        host.aliases[projection.removeprefix(f"{host.path}.")] = "down_proj"
    _activation(model, recording, host, taken, within or host.path)


def _activation(model: torch.nn.Module, recording: Recording, host: HostDraft, neurons: Site, within: str) -> None:
    """The activation: the module without matrices that gives as many numbers as there are neurons, where several MLPs
    share that module the call of it, else torch's own, with its square where the neurons are that.
    """
    sites = [site for site in recording.below(within) if site.order < neurons.order]
    axes = "(batch seq) intermediate_size" if neurons.tensor.ndim == 2 else None
    last_first = sites[::-1]
    modules, calls = ([site for site in last_first if bool(site.steps) is inside] for inside in (False, True))
    for site in (*modules, *calls):
        if _is_activation(model, recording, site, neurons.tensor):
            host.values["mlp_activation"] = Declared(
                "Neurons", location(site, host.path), str(Mlp.mlp_activation.description), axes
            )
            if site.module.startswith(f"{host.path}."):
                host.aliases[site.module.removeprefix(f"{host.path}.")] = "act_fn"
            elif site.module == host.path:
                children = model.get_submodule(host.path).named_children()
                host.aliases |= {name: "act_fn" for name, child in children if child is site.called}
            return
    for event in reversed(recording.inside(within)):
        if event.order < neurons.order and event.name in ACTIVATIONS and event.output.shape == neurons.tensor.shape:
            squared = event.output.square()
            made = squared if close(squared, neurons.tensor) else event.output
            found = _operation(recording, sites, made)
            if found is not None:
                host.values["mlp_activation"] = Declared(
                    "Neurons", found.at(host.path), str(Mlp.mlp_activation.description), found.held
                )
            return


def _operation(recording: Recording, sites: Iterable[Site], tensor: torch.Tensor) -> Found | None:
    if tensor.ndim == 3:
        return find(recording, [site for site in sites if site.steps], tensor, "Neurons")
    return None


def _is_activation(model: torch.nn.Module, recording: Recording, site: Site, neurons: torch.Tensor) -> bool:
    if site.side != "output" or site.index != () or site.tensor.shape != neurons.shape or not recording.once(site):
        return False
    module = site.called if site.steps else model.get_submodule(site.module)
    if not isinstance(module, torch.nn.Module) or any(p.ndim > 1 for p in module.parameters()):
        return False
    if is_norm(module, neurons.shape[-1]):
        return False
    given = _given(recording, site) if site.steps else entering(recording, site.module)
    return given is not None and given.tensor.shape == neurons.shape and not torch.equal(given.tensor, site.tensor)


def _given(recording: Recording, site: Site) -> Site | None:
    """The first tensor that an operation was called with."""
    place = (site.module, site.steps, "inputs")
    return next((each for each in recording.below(site.module) if each.place == place), None)
