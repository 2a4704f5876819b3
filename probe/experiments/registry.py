"""Every quirk, in the order of the page's chips."""

from __future__ import annotations

from . import (
    attention,
    cache,
    halves,
    heads,
    mixers,
    mlps,
    norms,
    projections,
    readout,
    residual,
    rotary,
    routing,
    shortened,
    sizes,
    sources,
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
    *support.QUIRKS,
    *rotary.QUIRKS,
    *cache.QUIRKS,
    *shortened.QUIRKS,
    *routing.QUIRKS,
    *mlps.QUIRKS,
    *readout.QUIRKS,
    *halves.QUIRKS,
    *vision.QUIRKS,
)
