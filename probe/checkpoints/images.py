"""Processors for the vision twins: transformers' own ones over our tokenizer, at the twins' sizes.

Gemma 4's image processor accepts only the published numbers of soft tokens, and Llama 4's needs torchvision; both are
replaced by small ones of the same output. Those of wrappers whose encoder is only watched are in `watched`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from transformers.image_processing_utils import BatchFeature
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.gemma4.processing_gemma4 import Gemma4Processor
from transformers.models.llama4.processing_llama4 import Llama4Processor

from probe.checkpoints import tokens, watched
from probe.checkpoints.pil import PlainImageProcessor

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerFast, ProcessorMixin


def test_image(width: int = 57, height: int = 36) -> Image.Image:
    """An RGB image with a different colour everywhere, not square, the same on every machine."""
    y, x = np.mgrid[0:height, 0:width].astype(np.int64)
    channels = (x * 255 // (width - 1), y * 255 // (height - 1), (x * x + 3 * x * y + 7 * y) % 256)
    return Image.fromarray(np.stack(channels, axis=-1).astype(np.uint8))


def processor(config: PreTrainedConfig, sizes: Mapping[str, int] = MappingProxyType({})) -> ProcessorMixin:
    """The processor of a vision twin.

    Args:
        config: the wrapper's config.
        sizes: the twin's ``image`` entry: ``max_soft_tokens`` of Gemma 4; ``max_patches``, the most tiles, of Llama 4.
    """
    tokenizer = tokens.tokenizer(config.model_type)
    return _MAKERS[config.model_type](config, tokenizer, sizes)


class SmallGemma4ImageProcessor(Gemma4ImageProcessorPil):
    """Gemma 4's image processor for any number of soft tokens.

    Resizes within the patch budget itself, then lets the original patchify, and cuts the padding down to the budget.
    """

    soft_tokens = 8

    def _preprocess(self, images: list[np.ndarray], **kwargs: Any) -> BatchFeature:
        rows = self.soft_tokens * kwargs["pooling_kernel_size"] ** 2
        resized = [
            self.aspect_ratio_preserving_resize(
                image=image,
                patch_size=kwargs["patch_size"],
                max_patches=rows,
                pooling_kernel_size=kwargs["pooling_kernel_size"],
                resample=kwargs["resample"],
            )
            for image in images
        ]
        batch = super()._preprocess(resized, **{**kwargs, "do_resize": False})
        for key in ("pixel_values", "image_position_ids"):
            batch[key] = batch[key][:, :rows]
        return batch


class ImageAndTextGemma4Processor(Gemma4Processor):
    """Gemma 4's processor without its audio and video parts, which need packages a twin does without."""

    def check_argument_for_proper_class(self, argument_name: str, argument: Any) -> Any:
        return None if argument is None else super().check_argument_for_proper_class(argument_name, argument)


class TileImageProcessor(PlainImageProcessor):
    """Llama 4's image processor on PIL: tiles of one size, then the whole image as a last, global tile.

    Returns ``pixel_values`` [tiles of all images, 3, size, size] and ``aspect_ratios`` [images, 2], rows and columns
    of tiles. An image of one tile has no global tile.
    """

    model_input_names = ["pixel_values"]
    max_tiles = 4

    def _preprocess(self, images: list[np.ndarray], size: Any, return_tensors: Any, **kwargs: Any) -> BatchFeature:
        side = size.height
        tiles: list[np.ndarray] = []
        grids = [self.grid(image.shape[-2] / side, image.shape[-1] / side) for image in images]
        for image, (rows, columns) in zip(images, grids, strict=True):
            canvas = self._scaled(self._padded(image, rows * side, columns * side), kwargs)
            tiles += [
                canvas[:, y * side : (y + 1) * side, x * side : (x + 1) * side]
                for y in range(rows)
                for x in range(columns)
            ]
            if rows * columns > 1:
                tiles.append(self._scaled(self._resized(image, side, side), kwargs))
        data = {"pixel_values": np.stack(tiles), "aspect_ratios": np.array(grids)}
        return BatchFeature(data=data, tensor_type=return_tensors)

    def grid(self, height: float, width: float) -> tuple[int, int]:
        """Rows and columns of tiles for an image of that many tile sides: nearest aspect ratio, least rescaling."""
        grids = [
            (rows, columns)
            for rows in range(1, self.max_tiles + 1)
            for columns in range(1, self.max_tiles + 1)
            if rows * columns <= self.max_tiles
        ]
        scales = {grid: min(grid[0] / height, grid[1] / width) for grid in grids}
        enlarging = [scale for scale in scales.values() if scale >= 1]
        chosen = min(enlarging) if enlarging else max(scales.values())
        return min((grid for grid in grids if scales[grid] == chosen), key=lambda grid: grid[0] * grid[1])

    def _resized(self, image: np.ndarray, height: int, width: int) -> np.ndarray:
        picture = Image.fromarray(np.moveaxis(image, 0, -1).astype(np.uint8))
        return np.moveaxis(np.asarray(picture.resize((width, height), self.resample)), -1, 0)

    def _padded(self, image: np.ndarray, height: int, width: int) -> np.ndarray:
        """The image at its own aspect ratio in the canvas's upper left corner, zeros elsewhere."""
        scale = min(height / image.shape[-2], width / image.shape[-1])
        inner = self._resized(image, max(1, int(image.shape[-2] * scale)), max(1, int(image.shape[-1] * scale)))
        missing = ((0, 0), (0, height - inner.shape[-2]), (0, width - inner.shape[-1]))
        return np.pad(inner, missing)

    def _scaled(self, image: np.ndarray, kwargs: dict[str, Any]) -> np.ndarray:
        mean, std = (np.array(kwargs[key], dtype=np.float32)[:, None, None] for key in ("image_mean", "image_std"))
        return (image.astype(np.float32) * np.float32(kwargs["rescale_factor"]) - mean) / std


def _gemma4(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerFast, sizes: Mapping[str, int]) -> ProcessorMixin:
    vision = config.vision_config
    images = SmallGemma4ImageProcessor(
        patch_size=vision.patch_size, pooling_kernel_size=vision.pooling_kernel_size, max_soft_tokens=70
    )
    images.soft_tokens = sizes["max_soft_tokens"]
    return ImageAndTextGemma4Processor(None, images, tokenizer, None, image_seq_length=sizes["max_soft_tokens"])


def _llama4(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerFast, sizes: Mapping[str, int]) -> ProcessorMixin:
    vision = config.vision_config
    images = TileImageProcessor(size={"height": vision.image_size, "width": vision.image_size})
    images.max_tiles = sizes["max_patches"]
    return Llama4Processor(
        images,
        tokenizer,
        patch_size=vision.patch_size,
        pixel_shuffle_ratio=vision.pixel_shuffle_ratio,
        fake_image_token=tokens.IMAGE,
        image_token=tokens.IMAGE,
    )


def _gemma3(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerFast, sizes: Mapping[str, int]) -> ProcessorMixin:
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
    from transformers.models.gemma3.processing_gemma3 import Gemma3Processor

    side = config.vision_config.image_size
    images = Gemma3ImageProcessorPil(size={"height": side, "width": side})
    return Gemma3Processor(images, tokenizer, image_seq_length=config.mm_tokens_per_image)


def _watched(
    make: Callable[[PreTrainedConfig, PreTrainedTokenizerFast], ProcessorMixin],
) -> Callable[[PreTrainedConfig, PreTrainedTokenizerFast, Mapping[str, int]], ProcessorMixin]:
    return lambda config, tokenizer, _: make(config, tokenizer)


_MAKERS = {
    "gemma4": _gemma4,
    "llama4": _llama4,
    "gemma3": _gemma3,
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"), _watched(watched.qwen)),
    "kimi_k25": _watched(watched.kimi),
    "llava": _watched(watched.llava),
}
