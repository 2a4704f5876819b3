"""Every quirk, in the order of the page's chips."""

from __future__ import annotations

from . import attention, halves, mlps, norms, projections, readout, rotary, routing, sizes, support, vision, wiring
from .base import Quirk

QUIRKS: tuple[Quirk, ...] = (
    *wiring.QUIRKS,
    *sizes.QUIRKS,
    *norms.QUIRKS,
    *projections.QUIRKS,
    *attention.QUIRKS,
    *support.QUIRKS,
    *rotary.QUIRKS,
    *routing.QUIRKS,
    *mlps.QUIRKS,
    *readout.QUIRKS,
    *halves.QUIRKS,
    *vision.QUIRKS,
)
