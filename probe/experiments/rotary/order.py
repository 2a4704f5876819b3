"""In which order a block's queries and keys are normed and turned."""

from __future__ import annotations

from ...measure.run import Run
from ..answers import per_block, tolerance
from ..attention.projections import qk_norm
from ..base import Measured, Quirk, Verdict, some
from .positions import tracks
from .turning import rotaries

ALIKE = "The queries' norm has no gain of its own, so that before or behind rotary it gives the same."
UNPAIRED = "Queries change with the position in no pairs that were tried."


def norm_after_rotary(run: Run) -> Verdict:
    """Turns one input to several positions: a gain that stands before the rotation leaves each pair of dimensions on a
    circle, one behind it makes an ellipse of the circle. Where all queries have one length, the norm has no gain.
    """
    norm = qk_norm(run)
    normed = norm.blocks or []
    found: list[bool | None] = []
    absent, unknown = "No block both norms and turns its queries.", None
    if norm.verdict == "inconclusive":
        unknown = norm.why
    for block, (turned, track) in enumerate(zip(rotaries(run), tracks(run), strict=True)):
        answer = None
        if block in normed and turned is not None and track is not None and turned.turning:
            lengths = track.queries[0].norm(dim=-1)
            if turned.style is None:
                unknown = UNPAIRED
            elif not turned.stretched and float(lengths.max() - lengths.min()) <= tolerance(run) * float(lengths.max()):
                absent = ALIKE
            else:
                answer = turned.stretched
        found.append(answer)
    measured: Measured = {"blocks_compared": sum(answer is not None for answer in found)}
    return per_block(found, measured, absent=absent, unknown=unknown)


QUIRKS = (
    Quirk(
        "norm-after-rotary",
        "Norm behind rotary",
        "text",
        norm_after_rotary,
        lambda m, b, n: (
            f"On {some(b or [], n)} queries and keys are turned first and normed after: the norm's gain makes ellipses "
            "of the circles on which pairs of dimensions turn."
        ),
    ),
)
