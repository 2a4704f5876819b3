"""Where each routing slot's output stands, and, where nowhere, what the forward does instead."""

from __future__ import annotations

import torch

from ..values.axes import Axes
from ..values.layouts import LAYOUTS
from .routing import Routing, tolerance
from .sites import Recording, Site

CLOSE = 1e-5
"""Largest difference, relative to the largest value, at which slots sum up to the routed output."""

FORMS = ("batch seq top_k hidden_size", "(batch seq) top_k hidden_size", "(batch seq top_k) hidden_size")
"""How a tensor of as many axes, from four down, holds the slots' outputs."""


def outputs(
    recording: Recording, routing: Routing, within: str, routed: torch.Tensor | None
) -> tuple[Site | None, str]:
    """The operation that holds every slot's weighted output, and the reason where there is none.

    Args:
        within: where to look, where the experts are no module of their own.
        routed: ``[batch, seq, hidden_size]``, what the slots sum up to.
    """
    if routed is None:
        return None, "The routed part has no place of its own, so no slot's part of it can be told."
    scale = float(routed.abs().max())
    below = [site for site in recording.below(routing.experts or within) if site.steps and site.side == "output"]
    rows = [site for site in below if site.tensor.is_floating_point() and _rows(site.tensor, routing, routed)]
    best: Site | None = None
    for site in rows:
        if recording.once(site) and _sums_up(site.tensor, routing, routed, scale):
            if best is None or (-site.tensor.ndim, site.order) < (-best.tensor.ndim, best.order):
                best = site
    return (best, "") if best is not None else (None, _reason(recording, routing, below, rows, routed, scale))


def axes(site: Site) -> Axes:
    """How the operation holds the slots' outputs."""
    return Axes.parse(FORMS[4 - site.tensor.ndim], LAYOUTS["ExpertOutputs"].dims)


def _rows(tensor: torch.Tensor, routing: Routing, routed: torch.Tensor) -> bool:
    """Whether a tensor has a row of the stream's width for each slot."""
    return (
        tensor.numel() == routed.numel() * routing.top_k
        and tensor.shape[-1] == routed.shape[-1]
        and 2 <= tensor.ndim <= 4
    )


def _sums_up(tensor: torch.Tensor, routing: Routing, routed: torch.Tensor, scale: float) -> bool:
    slots = tensor.reshape(*routing.size, routing.top_k, -1)
    return (
        float((slots.float().sum(2) - routed.float()).abs().max())
        <= max(tolerance(tensor, CLOSE), tolerance(routed, CLOSE)) * scale
    )


def _reason(
    recording: Recording,
    routing: Routing,
    below: list[Site],
    rows: list[Site],
    routed: torch.Tensor,
    scale: float,
) -> str:
    total = routed.float().flatten(0, 1).sum(0)
    for site in rows:
        sums = site.tensor.float().reshape(-1, total.numel()).sum(0)
        if float((sums - total).abs().max()) <= tolerance(routed, 1e-3) * scale * len(routed.flatten(0, 1)) ** 0.5:
            return (
                "The slots' weighted outputs stand sorted by expert only, one row below the other, and not by token "
                "and slot."
            )
    if routing.given is not None and routing.given.tensor.shape[-1] != routed.shape[-1]:
        width = int(routing.given.tensor.shape[-1])
        return f"The experts work in a width of {width}, so no slot has an output in the stream's width."
    runs = {
        site.steps: recording.calls[site.module, site.steps]
        for site in below
        if site.tensor.is_floating_point() and site.tensor.ndim == 2 and site.tensor.shape[-1] == routed.shape[-1]
    }
    if runs and max(runs.values()) > 1:
        return (
            "The experts run one after the other, each on its own tokens, and add into one sum: the operation that "
            f"weights an expert's output ran {max(runs.values())} times, and no place holds all slots."
        )
    return "The slots' outputs are summed inside one product, which leaves no tensor with an output for each slot."
