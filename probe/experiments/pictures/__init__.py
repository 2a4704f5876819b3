"""Pictures: the numbers behind an experiment's answer, for those who would rather look.

Each module measures one kind of picture, from the forwards that the experiments have run already; only the reach of
mixers without an attention takes one of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ...measure.run import Run
from ...schema import Experiment, Fact, Picture
from ..base import STRICT
from ..facts import not_measured
from . import bound, decay, depth, heads, load, masks, reach, scalars, slopes, spectrum, stream

KINDS: tuple[tuple[str, Callable[[Run], list[Picture]]], ...] = (
    ("masks", masks.pictures),
    ("reach of mixers", reach.pictures),
    ("masks over an image", masks.with_an_image),
    ("spectrum of the rotary", spectrum.pictures),
    ("slopes of the scores", slopes.pictures),
    ("factors of the scores", depth.of_scores),
    ("decay of the states", decay.pictures),
    ("passes of the blocks", depth.of_passes),
    ("response of the MLPs", bound.of_mlps),
    ("response of the projections", bound.of_projections),
    ("load of the experts", load.pictures),
    ("factors of the blocks", scalars.pictures),
    ("growth of the stream", stream.pictures),
    ("attention patterns", heads.pictures),
)


def draw_all(run: Run, answers: Sequence[Experiment]) -> tuple[list[Picture], list[Fact]]:
    """Every picture of the text model, and a fact for each kind that raised instead of being measured.

    Args:
        answers: the experiments' answers; a picture stands on the cards of those quirks of its own that hold.
    """
    found: list[Picture] = []
    failed: list[Fact] = []
    for label, measure in KINDS:
        try:
            found += measure(run)
        except Exception as error:
            if os.environ.get(STRICT):
                raise
            failed.append(not_measured(label, error))
    holding = {answer.slug: answer for answer in answers if answer.verdict == "yes"}
    return [_of_holding(picture, holding) for picture in found], failed


def draw_tower(run: Run) -> list[Picture]:
    """The pictures of the vision encoder; none without one."""
    return [] if run.vision is None else stream.of_stack(run.vision)


def _of_holding(picture: Picture, holding: dict[str, Experiment]) -> Picture:
    return picture.model_copy(update={"quirks": [slug for slug in picture.quirks if slug in holding]})
