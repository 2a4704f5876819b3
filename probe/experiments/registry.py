"""Every quirk, in the order of the page's chips."""

from __future__ import annotations

from . import (
    attention,
    frequencies,
    halves,
    heads,
    latent,
    mixers,
    mlps,
    norms,
    order,
    places,
    projections,
    readout,
    residual,
    rotary,
    routing,
    shortened,
    sizes,
    sources,
    storage,
    support,
    vision,
    wiring,
)
from .base import Quirk

QUIRKS: tuple[Quirk, ...] = (
    *wiring.QUIRKS,
    *residual.QUIRKS,
    *mixers.QUIRKS,
    *sizes.QUIRKS,
    *norms.QUIRKS,
    *projections.QUIRKS,
    *sources.QUIRKS,
    *attention.QUIRKS,
    *heads.QUIRKS,
    *latent.QUIRKS,
    *support.QUIRKS,
    *rotary.QUIRKS,
    *order.QUIRKS,
    *frequencies.QUIRKS,
    *places.QUIRKS,
    *storage.QUIRKS,
    *shortened.QUIRKS,
    *routing.QUIRKS,
    *mlps.QUIRKS,
    *readout.QUIRKS,
    *halves.QUIRKS,
    *vision.QUIRKS,
)
