"""Checks over the tower as a whole: its last stream, its features, and where they enter the text model."""

from __future__ import annotations

from collections.abc import Iterator

from ..identities import Check, Pair
from ..run import Run
from .root import call_module


def vision_checks(run: Run) -> Iterator[Check]:
    """Checks over the tower as a whole: its last stream, its features, and where they enter the text model."""
    yield Check(
        "tower output",
        "norm(vision.layers[-1].layer_output) == vision.tower_output, or the stream itself where there is no norm",
        root=_tower,
    )
    yield Check("image tokens", "input_ids == image_token_id == vision.image_token_mask", root=_image_tokens)
    yield Check("scatter", "layers[0].input[vision.image_token_mask] == vision.image_features", root=_scatter)


def _tower(run: Run) -> Pair | None:
    if run.vision is None:
        return None
    last = run.vision.get(len(run.vision) - 1, "", "layer_output")
    if last is None:
        return None
    tower = run.model.vision
    norm = tower.norm._module if "norm" in tower._aliases else None
    return (last if norm is None else call_module(run, norm, last)), run.root("tower_output", "model.vision")


def _image_tokens(run: Run) -> Pair | None:
    mask = run.root("image_token_mask", "model.vision")
    return (run.inputs["input_ids"] == run.model._module.config.image_token_id).float(), mask.float()


def _scatter(run: Run) -> Pair | None:
    entering = run.text.get(0, "", "layer_input")
    mask, features = run.root("image_token_mask", "model.vision"), run.root("image_features", "model.vision")
    return None if entering is None or mask is None else (entering[mask], features)
