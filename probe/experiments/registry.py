"""Every quirk, in the order of the page's chips."""

from __future__ import annotations

from . import attention, projections, rotary, sizes, support, vision, wiring
from .base import Quirk

QUIRKS: tuple[Quirk, ...] = (*wiring.QUIRKS, *projections.QUIRKS, *attention.QUIRKS, *sizes.QUIRKS, *support.QUIRKS, *rotary.QUIRKS, *vision.QUIRKS)
