"""What the twins' own image processors share: PIL alone, and pixels from -1 to 1."""

from __future__ import annotations

from PIL import Image
from transformers.image_processing_backends import PilBackend


class PlainImageProcessor(PilBackend):
    """Images in RGB, resized, with pixels from 0 to 255 moved to -1 to 1."""

    do_resize = True
    resample = Image.Resampling.BILINEAR
    do_rescale = True
    rescale_factor = 1 / 255
    do_normalize = True
    image_mean = [0.5, 0.5, 0.5]
    image_std = [0.5, 0.5, 0.5]
    do_convert_rgb = True
    size = {"height": 16, "width": 16}
