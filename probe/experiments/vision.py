"""Quirks of vision encoders: what becomes of an image, its rows, and its way into the text model.

Those of the tower's blocks are in :mod:`probe.experiments.vision_blocks`.
"""

from __future__ import annotations

from typing import Any

import torch

from ..checkpoints.images import test_image
from ..measure.rounding import digits, one_digit
from ..measure.run import Run, same
from ..measure.tower_runs import BLOCKS, SIZES, TOWER, Row, TowerRuns
from . import vision_blocks
from .base import Measured, Quirk, Verdict
from .vision_blocks import on_tower

NO_PATCHES = Verdict("n/a", why="This load gives no patch embeddings.")


def _vision(runs: TowerRuns) -> Verdict:
    """Noise on the pixels: do the logits move? A text model that never received the features would answer no."""
    here, control = runs.seen(Row.PIXELS, "logits", "model"), runs.seen(Row.CONTROL, "logits", "model")
    if here is None or control is None:
        return Verdict("inconclusive", why="The logits were not read.")
    mask = runs.run.root("image_token_mask", TOWER)
    moved = float((here - control).abs().max())
    measured: Measured = {"image_tokens": int(mask.sum()), "prompt_tokens": int(mask.numel()), "blocks": len(runs.stack), "logits_change": one_digit(moved)}
    return Verdict("yes" if moved > runs.tolerance * float(control.abs().max()) else "no", measured=measured)


def _class_token(runs: TowerRuns) -> Verdict:
    """Which rows entering the first block no pixel moves? With every pixel changed, a patch row must move, a class row cannot."""
    moved = runs.moved(Row.PIXELS, "layer_input", BLOCKS, 0)
    if moved is None or runs.run.root("patch_embeddings", TOWER) is None:
        return NO_PATCHES
    still = (~moved).all(dim=0).nonzero().flatten().tolist()
    patches, rows = runs.patches.shape[1], runs.stream.shape[1]
    measured: Measured = {"patches": patches, "rows": rows, "class_rows": len(still)}
    if not still:
        return Verdict("no", measured=measured)
    alike = same(runs.stream[:, still], runs.stream[:1, still].expand_as(runs.stream[:, still]), runs.tolerance)
    last = still == list(range(rows - len(still), rows))
    first = still == list(range(len(still)))
    measured |= {"row": still[0], "place": "last" if last else "first" if first else "between", "same_for_every_image": alike}
    return Verdict("yes", measured=measured)


def _packed(runs: TowerRuns) -> Verdict:
    """Two images in one prompt: do their patches share a row of the tower, or does each image add rows of its own?"""
    alone = [runs.pictures[0], runs.pictures[-1]]
    apart = sum(picture.stream[0] for picture in alone)
    together = runs.pair.stream
    measured: Measured = {"rows_alone": [picture.stream[0] for picture in alone], "rows_together": together[0], "length_together": together[1]}
    length = max(picture.stream[1] for picture in alone)
    if together[0] == apart and together[1] == length:
        return Verdict("no", measured=measured)
    if together[0] < apart and together[1] > length:
        return Verdict("yes", measured=measured)
    return Verdict("inconclusive", measured=measured, why=f"Two images gave {together[0]} rows of {together[1]}, alone they gave {apart} of {length}.")


def _variable(runs: TowerRuns) -> Verdict:
    """Three image sizes: are the patches of a row laid out on the same grid each time?"""
    pictures = runs.pictures
    grids = [picture.grid for picture in pictures]
    if any(grid is None for grid in grids):
        return Verdict("inconclusive", why="Neither the inputs nor the pixels show where a patch lies.")
    measured: Measured = {
        "images": [f"{width} × {height}" for width, height in SIZES],
        "grids": [f"{grid[0]} × {grid[1]}" for grid in grids if grid],
        "image_tokens": [picture.tokens for picture in pictures],
    }
    return Verdict("yes" if len(set(grids)) > 1 else "no", measured=measured)


def _padded(runs: TowerRuns) -> Verdict:
    """Rows that get no attention from any other row: noise on them must leave every other row and the features alone, to the bit."""
    if runs.pattern(0) is None:
        return Verdict("n/a", why="This load gives no attention pattern of the tower.")
    unread = runs.unread
    measured: Measured = {"rows": unread.shape[1], "padded": unread.sum(dim=1).tolist()}
    if not unread.any():
        return Verdict("no", measured=measured)
    entering = runs.moved(Row.UNREAD_ROWS, "layer_input", BLOCKS, 0)
    leaving = runs.moved(Row.UNREAD_ROWS, "layer_output", BLOCKS, len(runs.stack) - 1)
    features = runs.moved(Row.UNREAD_ROWS, "image_features")
    if entering is None or leaving is None or features is None:
        return Verdict("inconclusive", measured=measured, why="The tower's stream was not read.")
    measured |= {
        "rows_changed": int(entering.sum()),
        "patches_moved": int((leaving & ~unread).sum()),
        "features_moved": int(features.sum()),
        "padded_rows_leave_with_values": bool(runs.stream[unread].abs().max() > 0),
    }
    if measured["patches_moved"]:
        return Verdict("inconclusive", measured=measured, why="Rows that nobody attends to still reach other rows.")
    return Verdict("yes", measured=measured)


def _tiled(runs: TowerRuns) -> Verdict:
    """Images of three sizes: how many rows of the tower does each take? Whether one shows the whole image is seen by repainting parts."""
    counts = [picture.stream[0] for picture in runs.pictures]
    measured: Measured = {"images": [f"{width} × {height}" for width, height in SIZES], "rows": counts}
    if max(counts) == 1:
        return Verdict("no", measured=measured)
    return Verdict("yes", measured=measured | {"global_row": global_row(runs)})


def global_row(runs: TowerRuns) -> str:
    """`first`, `last` or `none`: where the row is that answers to a change of any part of the image."""
    image = test_image()
    base = runs.encode([image])[runs.pixels_name]
    across, down = 4, 4
    answers = torch.ones(base.shape[0], dtype=torch.bool)
    for cell in range(across * down):
        left, top = cell % across * image.width // across, cell // across * image.height // down
        box = (left, top, left + image.width // across, top + image.height // down)
        painted = image.copy()
        painted.paste(image.crop(box).point(lambda level: 255 - level), box)
        changed = runs.encode([painted])[runs.pixels_name]
        answers &= (changed != base).flatten(1).any(dim=1).cpu()
    if int(answers.sum()) != 1:
        return "none"
    return "last" if bool(answers[-1]) else "first" if bool(answers[0]) else "between"


def _deepstack(runs: TowerRuns) -> Verdict:
    """Does the text stream change at image positions between one block and the next? Features added there would show."""
    mask = runs.run.root("image_token_mask", TOWER)
    after, worst = [], 0.0
    for block in range(len(runs.run.text) - 1):
        leaving, entering = runs.run.text.get(block, "", "layer_output"), runs.run.text.get(block + 1, "", "layer_input")
        if leaving is None or entering is None:
            return Verdict("inconclusive", why="The text model's stream was not read.")
        change = float((entering - leaving)[mask].abs().max())
        worst = max(worst, change)
        if change > runs.tolerance * float(leaving.abs().max()):
            after.append(block)
    measured: Measured = {"joints": len(runs.run.text) - 1, "largest_change": one_digit(worst)}
    return Verdict("yes", after, measured) if after else Verdict("no", measured=measured)


def _unpadded(runs: TowerRuns) -> Verdict:
    """Are the features at the scatter the projector's output, row for row?"""
    features = runs.run.root("image_features", TOWER)
    station = next((found for found in runs.stations if found.path == "projector"), None)
    if features is None or station is None or station.leaving is None:
        return Verdict("n/a", why="The tower has no projector.")
    flat = station.leaving.flatten(0, -2)
    equal = same(flat, features, runs.tolerance)
    return Verdict("no" if equal else "yes", measured={"projector_rows": flat.shape[0], "image_features": features.shape[0]})


def _pooled(runs: TowerRuns) -> Verdict:
    """Image tokens against patches, padding left out; and the module in which their number falls."""
    features = runs.run.root("image_features", TOWER)
    if features is None or runs.run.root("patch_embeddings", TOWER) is None:
        return NO_PATCHES
    patches, tokens = patch_count(runs), features.shape[0]
    measured: Measured = {"patches": patches, "image_tokens": tokens, "patches_per_token": digits(patches / tokens)}
    if tokens >= patches:
        return Verdict("no", measured=measured)
    return Verdict("yes", measured=measured | {"module": pooling_module(runs)})


def patch_count(runs: TowerRuns) -> int:
    """Patches of the run's image over all rows, padding left out."""
    rows = runs.moved(Row.PIXELS, "layer_input", BLOCKS, 0)
    return runs.patches.shape[0] * runs.patches.shape[1] if rows is None else int((rows & ~runs.unread).sum())


def pooling_module(runs: TowerRuns) -> str | None:
    """Path of the outermost module after the blocks that returns fewer rows an image than it takes."""
    for station in sorted(runs.stations, key=lambda at: at.path.count(".")):
        if station.after_blocks and station.entering is not None and station.leaving is not None:
            entering, leaving = station.entering, station.leaving
            if entering.ndim == leaving.ndim == 3 and leaving.shape[1] < entering.shape[1]:
                return station.path
    return None


def _encoder_free(run: Run) -> Verdict:
    """Blocks between the patches and the features; with none, patches go straight to the projector."""
    count = 0 if run.vision is None else len(run.vision)
    return Verdict("no" if count else "yes", measured={"blocks": count})




def _say_class(m: Measured, *_: Any) -> str:
    return f"The {m['place']} of a row's {m['rows']} entries is a class row: no pixel moves it, and the other {m['rows'] - m['class_rows']} are the patches."


def _say_padded(m: Measured, *_: Any) -> str:
    padded = m["padded"][0] if len(set(m["padded"])) == 1 else m["padded"]
    return (
        f"{padded} of a row's {m['rows']} entries are padding: noise on them moved {m['patches_moved']} patches and "
        f"{m['features_moved']} image features, yet they pass every block and are in layer_output."
    )


def _say_tiled(m: Measured, *_: Any) -> str:
    most = m["rows"].index(max(m["rows"]))
    end = "" if m["global_row"] == "none" else f", the {m['global_row']} of them the whole image made small"
    return f"A {m['images'][most]} image became {m['rows'][most]} rows of the tower{end}; other sizes gave {_listed(sorted(set(m['rows'])))}."


def _listed(items: list[Any]) -> str:
    words = [str(item) for item in items]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


QUIRKS: tuple[Quirk, ...] = (
    Quirk(
        "vision", "Vision-language", "vision", on_tower(_vision),
        lambda m, *_: f"A vision encoder of {m['blocks']} blocks feeds the text model: {m['image_tokens']} of the prompt's {m['prompt_tokens']} tokens hold image features.",
    ),
    Quirk("cls-token", "Class token", "vision", on_tower(_class_token), _say_class),
    Quirk(
        "packed-tower", "Packed tower", "vision", on_tower(_packed),
        lambda m, *_: f"All images of a prompt run in one row: two images gave {m['rows_together']} row of {m['length_together']} patches.",
    ),
    Quirk(
        "variable-resolution", "Variable resolution", "vision", on_tower(_variable),
        lambda m, *_: f"The grid of patches follows the image: sizes {_listed(m['images'])} gave grids of {_listed(m['grids'])} and {_listed(m['image_tokens'])} image tokens.",
    ),
    Quirk("padded-patches", "Padded patches", "vision", on_tower(_padded), _say_padded),
    Quirk("tiled-images", "Tiled images", "vision", on_tower(_tiled), _say_tiled),
    Quirk(
        "deepstack", "Deepstack", "vision", on_tower(_deepstack),
        lambda m, blocks, _: f"Image features are added to the text stream again after text blocks {_listed(blocks or [])}.",
    ),
    Quirk(
        "unpadded-features", "Unpadded features", "vision", on_tower(_unpadded),
        lambda m, *_: f"image_features are not the projector's output: {m['image_features']} reach the scatter, the projector returns {m['projector_rows']}.",
    ),
    Quirk(
        "pooled-projector", "Pooled patches", "vision", on_tower(_pooled),
        lambda m, *_: f"{m['patches']} patches become {m['image_tokens']} image tokens, {m['patches_per_token']:g} to one{f', in {at}' if (at := m['module']) else ''}.",
    ),
    Quirk("encoder-free", "No encoder blocks", "vision", _encoder_free, lambda *_: "Patches go to the text model without passing any encoder block."),
    *vision_blocks.QUIRKS,
)  # fmt: skip
"""Every quirk of the vision side, in the order of the page's chips."""
