"""The vision twins' processors: the tensors and the token counts that the real classes expect."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from probe.checkpoints.images import TileImageProcessor
from probe.checkpoints.images import test_image as picture

TEXT = "<image> What is this?"
VISION = [
    ("gemma4_text", "tiny-vision"),
    ("gemma4_text", "tiny-moe"),
    ("gemma4_text", "tiny-dense"),
    ("llama4_text", "tiny-vision"),
    ("llama4_text", "tiny-interleaved"),
    ("gemma3_text", "tiny-vision"),
]


def _inputs(loaded: Any, *images: Image.Image, text: str = TEXT) -> dict[str, Any]:
    return dict(loaded.processor(text=text, images=list(images), return_tensors="pt"))


@pytest.mark.parametrize(("family", "name"), VISION)
def test_image_reaches_the_logits(family: str, name: str, twin: Any) -> None:
    loaded = twin(family, name)
    with torch.no_grad():
        one = loaded.module(**_inputs(loaded, picture())).logits
        other = loaded.module(**_inputs(loaded, picture().transpose(Image.Transpose.ROTATE_180))).logits
    assert one.shape == other.shape and torch.isfinite(one).all()
    assert (one[0, -1] - other[0, -1]).abs().max() > 1e-3


@pytest.mark.parametrize(("family", "name"), VISION)
def test_two_images_and_text_alone(family: str, name: str, twin: Any) -> None:
    loaded = twin(family, name)
    inputs = _inputs(loaded, picture(), picture(30, 61), text="<image> or <image>?")
    with torch.no_grad():
        assert torch.isfinite(loaded.module(**inputs).logits).all()
        assert torch.isfinite(
            loaded.module(**dict(loaded.processor(text="no image", return_tensors="pt"))).logits
        ).all()


def test_gemma4_rows_are_patches_then_padding(twin: Any) -> None:
    loaded = twin("gemma4_text", "tiny-vision")
    inputs = _inputs(loaded, picture())
    positions, rows = inputs["image_position_ids"][0], inputs["pixel_values"][0]
    padded = (positions == -1).all(-1)
    assert rows.shape[0] == 8 * 9 and 10 <= int(padded.sum()) <= 30
    patches = int((~padded).sum())
    assert not padded[:patches].any() and (rows[padded] == 0).all()
    assert int((inputs["input_ids"] == loaded.config.image_token_id).sum()) == patches // 9
    width, height = (positions[~padded].max(0).values + 1).tolist()
    assert width * height == patches and width > height


def test_gemma4_padded_rows_change_nothing(twin: Any) -> None:
    loaded = twin("gemma4_text", "tiny-vision")
    inputs = _inputs(loaded, picture())
    padded = (inputs["image_position_ids"] == -1).all(-1)
    changed = inputs["pixel_values"].clone()
    changed[padded] = 0.7
    with torch.no_grad():
        before = loaded.module(**inputs).logits
        after = loaded.module(**{**inputs, "pixel_values": changed}).logits
    assert torch.equal(before, after)


def test_llama4_image_is_two_tiles_and_a_global_one(twin: Any) -> None:
    loaded = twin("llama4_text", "tiny-vision")
    inputs = _inputs(loaded, picture())
    assert inputs["pixel_values"].shape == (3, 3, 16, 16)
    decoded = loaded.tokenizer.decode(inputs["input_ids"][0])
    tile = "<|patch|>" * 4
    assert decoded == (
        f"<bos><|image_start|>{tile}<|tile_x_separator|>{tile}<|tile_y_separator|><|image|>{tile}<|image_end|>"
        " What is this?"
    )


def test_tiles_join_to_the_resized_image() -> None:
    processor = TileImageProcessor(size={"height": 16, "width": 16})
    image = picture(32, 16)
    tiles = processor([image], return_tensors="np")["pixel_values"]
    whole = (np.moveaxis(np.asarray(image), -1, 0).astype(np.float32) / 255 - 0.5) / 0.5
    assert np.allclose(np.concatenate([tiles[0], tiles[1]], axis=-1), whole, atol=1e-6)
    assert tiles.shape[0] == 3


def test_padding_keeps_the_aspect_ratio() -> None:
    tiles = TileImageProcessor(size={"height": 16, "width": 16})(
        [Image.new("RGB", (24, 16), "white")], return_tensors="np"
    )
    joined = np.concatenate([tiles["pixel_values"][0], tiles["pixel_values"][1]], axis=-1)
    assert tiles["aspect_ratios"].tolist() == [[1, 2]]
    assert (joined[:, :, :24] == 1).all() and (joined[:, :, 24:] == -1).all()


@pytest.mark.parametrize(
    ("height", "width", "tile", "tiles", "grid"),
    [
        (200, 300, 224, 3, (1, 2)),  # the worked example in transformers' get_best_fit
        (100, 100, 224, 3, (1, 1)),
        (1000, 200, 224, 4, (4, 1)),
        (900, 900, 224, 4, (2, 2)),
    ],
)
def test_grid_of_tiles(height: int, width: int, tile: int, tiles: int, grid: tuple[int, int]) -> None:
    processor = TileImageProcessor(size={"height": tile, "width": tile})
    processor.max_tiles = tiles
    assert processor.grid(height / tile, width / tile) == grid


def test_the_image_is_not_square_and_no_two_columns_agree() -> None:
    pixels = np.asarray(picture())
    assert pixels.shape == (36, 57, 3)
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 0.9 * 36 * 57
