"""Quirks of vision encoders: what becomes of an image, its rows, and its way into the text model.

Those of the features are in :mod:`probe.experiments.vision.features`, those of places and masks in
:mod:`probe.experiments.vision.places`, those of the tower's blocks in :mod:`probe.experiments.vision.blocks`.
"""

from __future__ import annotations

from typing import Any

from ...measure.rounding import one_digit
from ...measure.run import Run
from ...measure.tower_runs import BLOCKS, SIZES, TOWER, Row, TowerRuns
from ...standard.stack import same
from ..base import Measured, Quirk, Verdict
from . import blocks as vision_blocks
from . import features as vision_features
from . import places as vision_places
from .blocks import on_tower

NO_PATCHES = Verdict("n/a", why="This load gives no patch embeddings.")


def _vision(runs: TowerRuns) -> Verdict:
    """Noise on the pixels: do the logits move? A text model that never received the features would answer no."""
    here, control = runs.seen(Row.PIXELS, "logits", "model"), runs.seen(Row.CONTROL, "logits", "model")
    if here is None or control is None:
        return Verdict("inconclusive", why="The logits were not read.")
    mask = runs.run.root("image_token_mask", TOWER)
    moved = float((here - control).abs().max())
    measured: Measured = {
        "image_tokens": int(mask.sum()),
        "prompt_tokens": int(mask.numel()),
        "blocks": len(runs.stack),
        "logits_change": one_digit(moved),
    }
    return Verdict("yes" if moved > runs.tolerance * float(control.abs().max()) else "no", measured=measured)


def _class_token(runs: TowerRuns) -> Verdict:
    """Which rows entering the first block do no pixels move? With all changed, a patch row moves, a class row not."""
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
    measured |= {
        "row": still[0],
        "place": "last" if last else "first" if first else "between",
        "same_for_every_image": alike,
    }
    return Verdict("yes", measured=measured)


def _packed(runs: TowerRuns) -> Verdict:
    """Two images in one prompt: do their patches share a row of the tower, or does each image add rows of its own?"""
    alone = [runs.pictures[0], runs.pictures[-1]]
    apart = sum(picture.stream[0] for picture in alone)
    together = runs.pair.stream
    measured: Measured = {
        "rows_alone": [picture.stream[0] for picture in alone],
        "rows_together": together[0],
        "length_together": together[1],
    }
    length = max(picture.stream[1] for picture in alone)
    if together[0] == apart and together[1] == length:
        return Verdict("no", measured=measured)
    if together[0] < apart and together[1] > length:
        return Verdict("yes", measured=measured)
    return Verdict(
        "inconclusive",
        measured=measured,
        why=f"Two images gave {together[0]} rows of {together[1]}, alone they gave {apart} of {length}.",
    )


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
    """Rows that no other row attends to: noise on them must leave every other row and the features as they were."""
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
    """How many rows of the tower do three sizes take? Repainting parts shows whether one row has the whole image."""
    counts = [picture.stream[0] for picture in runs.pictures]
    measured: Measured = {"images": [f"{width} × {height}" for width, height in SIZES], "rows": counts}
    if max(counts) == 1:
        return Verdict("no", measured=measured)
    return Verdict("yes", measured=measured | {"global_row": runs.global_row})


def _encoder_free(run: Run) -> Verdict:
    """Blocks between the patches and the features; with none, patches go straight to the projector."""
    count = 0 if run.vision is None else len(run.vision)
    return Verdict("no" if count else "yes", measured={"blocks": count})


def _say_class(m: Measured, *_: Any) -> str:
    patches = m["rows"] - m["class_rows"]
    return (
        f"The {m['place']} of a row's {m['rows']} entries is a class row, which no pixel moves; "
        f"the other {patches} are the patches."
    )


def _say_padded(m: Measured, *_: Any) -> str:
    padded = m["padded"][0] if len(set(m["padded"])) == 1 else m["padded"]
    return (
        f"{padded} of a row's {m['rows']} entries are padding: noise on them moved {m['patches_moved']} patches and "
        f"{m['features_moved']} image features, yet they pass every block and are in layer_output."
    )


def _say_tiled(m: Measured, *_: Any) -> str:
    most = m["rows"].index(max(m["rows"]))
    end = "" if m["global_row"] == "none" else f", the {m['global_row']} of them the whole image made small"
    each = ", ".join(f"{size}: {rows}" for size, rows in zip(m["images"], m["rows"], strict=True))
    return f"A {m['images'][most]} image became {m['rows'][most]} rows of the tower{end} ({each})."


def _say_vision(m: Measured, *_: Any) -> str:
    return (
        f"A vision encoder of {m['blocks']} blocks feeds the text model: "
        f"{m['image_tokens']} of the prompt's {m['prompt_tokens']} tokens hold image features."
    )


def _say_packed(m: Measured, *_: Any) -> str:
    return (
        f"All images of a prompt share {m['rows_together']} row of the tower: two gave {m['length_together']} patches."
    )


def _say_variable(m: Measured, *_: Any) -> str:
    each = zip(m["images"], m["grids"], m["image_tokens"], strict=True)
    found = ", ".join(f"{size} gave {grid} patches and {tokens} image tokens" for size, grid, tokens in each)
    return f"The grid of patches follows the image: {found}."


QUIRKS: tuple[Quirk, ...] = (
    Quirk("vision", "Vision-language", "vision", on_tower(_vision), _say_vision),
    Quirk("variable-resolution", "Variable resolution", "vision", on_tower(_variable), _say_variable),
    Quirk("tiled-images", "Tiled images", "vision", on_tower(_tiled), _say_tiled),
    Quirk("packed-tower", "Packed tower", "vision", on_tower(_packed), _say_packed),
    Quirk("padded-patches", "Padded patches", "vision", on_tower(_padded), _say_padded),
    Quirk("cls-token", "Class token", "vision", on_tower(_class_token), _say_class),
    Quirk(
        "encoder-free", "No encoder blocks", "vision", _encoder_free,
        lambda *_: "Patches go to the text model without passing any encoder block.",
    ),
    *vision_features.QUIRKS,
    *vision_places.QUIRKS,
    *vision_blocks.QUIRKS,
)  # fmt: skip
"""Every quirk of the vision side, in the order of the page's chips."""
