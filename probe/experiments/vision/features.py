"""Quirks of the way from a tower's output to the text model: pooling, scales, the projector, the scatter."""

from __future__ import annotations

from typing import Any

from ...measure.rounding import digits, one_digit
from ...measure.tower_configs import POOLING
from ...measure.tower_pooling import average, pooled, shift
from ...measure.tower_runs import TOWER, TowerRuns
from ...standard.stack import same
from ..base import Measured, Quirk, Verdict
from .blocks import on_tower


def _deepstack(runs: TowerRuns) -> Verdict:
    """Does the text stream change between one block and the next, at image positions and at no others? Features added
    there show.
    """
    text = runs.run.text
    mask = runs.run.root("image_token_mask", TOWER)
    after, worst = [], 0.0
    for block in range(len(text) - 1):
        leaving, entering = text.get(block, "", "layer_output"), text.get(block + 1, "", "layer_input")
        if leaving is None or entering is None:
            return Verdict("inconclusive", why="The text model's stream was not read.")
        change, elsewhere = (float((entering - leaving)[at].abs().max()) for at in (mask, ~mask))
        worst = max(worst, change)
        least = runs.tolerance * float(leaving.abs().max())
        if change > least >= elsewhere:
            after.append(block)
    measured: Measured = {"joints": len(text) - 1, "largest_change": one_digit(worst)}
    return Verdict("yes", measured=measured | {"text_blocks": after}) if after else Verdict("no", measured=measured)


def _unpadded(runs: TowerRuns) -> Verdict:
    """Are the features at the scatter the projector's output, row for row?"""
    features = runs.run.root("image_features", TOWER)
    station = next((found for found in runs.stations if found.path == "projector"), None)
    if features is None or station is None or station.leaving is None:
        return Verdict("n/a", why="The tower has no projector.")
    flat = station.leaving.flatten(0, -2)
    equal = same(flat, features, runs.tolerance)
    return Verdict(
        "no" if equal else "yes", measured={"projector_rows": flat.shape[0], "image_features": features.shape[0]}
    )


def _pooled(runs: TowerRuns) -> Verdict:
    """Image tokens against patches, padding left out; and the module in which their number falls."""
    features = runs.run.root("image_features", TOWER)
    if features is None or runs.run.root("patch_embeddings", TOWER) is None:
        return Verdict("n/a", why="This load gives no patch embeddings.")
    patches, tokens = runs.patch_count, features.shape[0]
    measured: Measured = {"patches": patches, "image_tokens": tokens, "patches_per_token": digits(patches / tokens)}
    if tokens >= patches:
        return Verdict("no", measured=measured)
    side, explained = (patches / tokens) ** 0.5, {}
    if side == round(side):
        measured["side"] = round(side)
        explained = _entry("side", side, runs.tower._module.config, POOLING)
    explained |= _entry("image_tokens", tokens, runs.run.model._module.config, ("tokens_per_image",))
    return Verdict("yes", measured=measured | {"module": runs.pooling_module}, explained=explained)


def _entry(name: str, value: float, config: Any, words: tuple[str, ...]) -> dict[str, str]:
    """Measured name -> the config's entry whose name has one of ``words`` and whose value is the same."""
    for key, entry in sorted(config.to_dict().items()):
        if any(word in key for word in words) and not isinstance(entry, bool) and entry == value:
            return {name: key}
    return {}


def _scaled(runs: TowerRuns) -> Verdict:
    """Each token fitted as a multiple of its patches' average: one multiple, not 1, for all tokens is a scale."""
    if pooled(runs) is None:
        return Verdict("n/a", why="No module after the blocks makes fewer rows of them.")
    found = average(runs)
    if found is None:
        return Verdict("no", measured={"average_of_patches": False, "module": runs.pooling_module})
    measured: Measured = {
        "module": found.module,
        "side": found.side,
        "factor": digits(found.factor),
        "root_of_width": digits(runs.stream.shape[-1] ** 0.5),
    }
    return Verdict("no" if abs(found.factor - 1) < runs.tolerance else "yes", measured=measured)


def _standardized(runs: TowerRuns) -> Verdict:
    """What enters the projector fitted, dimension by dimension, as a line of what the pooling returned."""
    if pooled(runs) is None:
        return Verdict("n/a", why="No module after the blocks makes fewer rows of them.")
    found = shift(runs)
    if found is None:
        return Verdict("no", measured={"module": runs.pooling_module})
    return Verdict("yes", measured={"module": runs.pooling_module, "shift": found.shift, "scale": found.scale})


def _say_pooled(m: Measured, *_: Any) -> str:
    where = f", in {m['module']}" if m["module"] else ""
    return f"{m['patches']} patches become {m['image_tokens']} image tokens, {m['patches_per_token']:g} to one{where}."


def _say_scaled(m: Measured, *_: Any) -> str:
    root = ", the root of vision_hidden_size" if m["factor"] == m["root_of_width"] else ""
    side = m["side"]
    return f"{m['module']} returns the average of {side} × {side} patches times {m['factor']:g}{root}."


def _say_standardized(m: Measured, *_: Any) -> str:
    by = " and ".join(name for name in (m["shift"], m["scale"]) if name) or "numbers of its own"
    return f"After {m['module']} each dimension is shifted and scaled by {by} before the projector reads it."


def _say_unpadded(m: Measured, *_: Any) -> str:
    return (
        f"image_features are not the projector's output: {m['image_features']} reach the scatter, "
        f"the projector returns {m['projector_rows']}."
    )


def _say_deepstack(m: Measured, *_: Any) -> str:
    blocks = ", ".join(map(str, m["text_blocks"]))
    return f"Image features are added to the text stream again after text blocks {blocks}."


QUIRKS: tuple[Quirk, ...] = (
    Quirk("deepstack", "Deepstack", "vision", on_tower(_deepstack), _say_deepstack),
    Quirk("unpadded-features", "Unpadded features", "vision", on_tower(_unpadded), _say_unpadded),
    Quirk("pooled-projector", "Pooled patches", "vision", on_tower(_pooled), _say_pooled),
    Quirk("scaled-pooling", "Scaled pooling", "vision", on_tower(_scaled), _say_scaled),
    Quirk("standardized-features", "Standardized features", "vision", on_tower(_standardized), _say_standardized),
)
"""Quirks of the image features."""
