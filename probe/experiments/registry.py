"""Every quirk, in the order of the page's chips."""

from __future__ import annotations

from .attention import arithmetic, beside, clipping, depth, heads, latent, projections, sources, support
from .base import Quirk
from .calls import halves, shortened, storage
from .mlp import bounded, mlps, routing
from .recurrence import mixers
from .rotary import frequencies, order, places, variants
from .stream import gated_norms, looping, norms, one_for_several, readout, residual, sizes, unlisted, wiring
from .vision import images

QUIRKS: tuple[Quirk, ...] = (
    *wiring.QUIRKS,
    *looping.QUIRKS,
    *one_for_several.QUIRKS,
    *unlisted.QUIRKS,
    *beside.QUIRKS,
    *residual.QUIRKS,
    *mixers.QUIRKS,
    *sizes.QUIRKS,
    *norms.QUIRKS,
    *gated_norms.QUIRKS,
    *projections.QUIRKS,
    *sources.QUIRKS,
    *clipping.QUIRKS,
    *arithmetic.QUIRKS,
    *depth.QUIRKS,
    *heads.QUIRKS,
    *latent.QUIRKS,
    *support.QUIRKS,
    *variants.QUIRKS,
    *order.QUIRKS,
    *frequencies.QUIRKS,
    *places.QUIRKS,
    *storage.QUIRKS,
    *shortened.QUIRKS,
    *routing.QUIRKS,
    *mlps.QUIRKS,
    *bounded.QUIRKS,
    *readout.QUIRKS,
    *halves.QUIRKS,
    *images.QUIRKS,
)
