"""Processors for the twins of wrappers whose vision encoder has no standard names, so that its modules are watched.

They are transformers' own over our tokenizer, without their video parts. Kimi's image processor needs torchvision; a
small one of the same output stands in for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from transformers.image_processing_utils import BatchFeature

from probe.checkpoints.pil import PlainImageProcessor

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerFast, ProcessorMixin

ROWS = 2
"""An image has at least so many rows of image tokens, and as many columns."""


def without_video(processor_class: type[ProcessorMixin]) -> type[ProcessorMixin]:
    """A processor class that takes None in place of the parts that a twin does without."""

    def check_argument_for_proper_class(self: Any, argument_name: str, argument: Any) -> Any:
        found: Any = super(made, self)
        return None if argument is None else found.check_argument_for_proper_class(argument_name, argument)

    made = type(
        processor_class.__name__,
        (processor_class,),
        {"check_argument_for_proper_class": check_argument_for_proper_class},
    )
    return made


class PatchImageProcessor(PlainImageProcessor):
    """Kimi's image processor on PIL: each image resized to whole groups of patches, and cut into patches.

    Returns ``pixel_values`` [patches of all images, 3, patch_size, patch_size], row by row, and ``image_grid_thw``
    [images, 3]: frames, rows and columns of patches.
    """

    model_input_names = ["pixel_values", "image_grid_thw"]
    resample = Image.Resampling.BICUBIC
    patch_size = 4
    merge_size = 2

    def _preprocess(self, images: list[np.ndarray], return_tensors: Any, **kwargs: Any) -> BatchFeature:
        side, group = self.patch_size, self.patch_size * self.merge_size
        patches, grids = [], []
        for image in images:
            height, width = (max(1, round(extent / group)) * group for extent in image.shape[-2:])
            picture = Image.fromarray(np.moveaxis(image, 0, -1).astype(np.uint8)).resize((width, height), self.resample)
            pixels = np.moveaxis(np.asarray(picture), -1, 0).astype(np.float32) * np.float32(self.rescale_factor)
            rows, columns = height // side, width // side
            cut = (pixels * 2 - 1).reshape(3, rows, side, columns, side).transpose(1, 3, 0, 2, 4)
            patches.append(cut.reshape(-1, 3, side, side))
            grids.append((1, rows, columns))
        data = {"pixel_values": np.concatenate(patches), "image_grid_thw": np.array(grids)}
        return BatchFeature(data=data, tensor_type=return_tensors)


def qwen(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerFast) -> ProcessorMixin:
    """The processor of Qwen2-VL, Qwen2.5-VL and Qwen3-VL."""
    from transformers.models.qwen2_5_vl.processing_qwen2_5_vl import Qwen2_5_VLProcessor
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    from transformers.models.qwen2_vl.processing_qwen2_vl import Qwen2VLProcessor
    from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor

    vision = config.vision_config
    group = vision.patch_size * vision.spatial_merge_size
    images = Qwen2VLImageProcessorPil(
        patch_size=vision.patch_size,
        temporal_patch_size=vision.temporal_patch_size,
        merge_size=vision.spatial_merge_size,
        min_pixels=(ROWS * group) ** 2,
        max_pixels=(64 * group) ** 2,
    )
    known = {"qwen2_vl": Qwen2VLProcessor, "qwen2_5_vl": Qwen2_5_VLProcessor}
    return without_video(known.get(config.model_type, Qwen3VLProcessor))(images, tokenizer, None)


def kimi(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerFast) -> ProcessorMixin:
    """The processor of Kimi K2.5, with our image processor in place of its own."""
    from transformers.models.kimi_k25.processing_kimi_k25 import Kimi_K25Processor

    images = PatchImageProcessor()
    images.patch_size, images.merge_size = config.vision_config.patch_size, config.vision_config.merge_kernel_size[0]
    return without_video(Kimi_K25Processor)(images, tokenizer, None)


def llava(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerFast) -> ProcessorMixin:
    """The processor of LLaVA-1.5: a square, and a token for every patch but none for the class row."""
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from transformers.models.llava.processing_llava import LlavaProcessor

    vision = config.vision_config
    side = vision.image_size
    images = CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size={"height": side, "width": side})
    return LlavaProcessor(
        images,
        tokenizer,
        patch_size=vision.patch_size,
        vision_feature_select_strategy=config.vision_feature_select_strategy,
        image_token=tokenizer.image_token,
        num_additional_image_tokens=1,
    )
