"""The tower of a run, run again: changed inputs, other images, and where each patch of an image lies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from ..checkpoints.images import test_image
from ..standard.inputs import image_marker
from ..standard.trace import Inputs
from .run import Run
from .tower_forwards import BLOCKS, TOWER, Row, Station, TowerForwards

__all__ = ["BLOCKS", "SIZES", "TOWER", "Picture", "Row", "Station", "TowerRuns"]

SIZES = ((57, 36), (40, 40), (20, 70))
"""Width and height of the images that are tried: the run's own, a square one, a tall one."""

CELLS = 4
"""Parts across and down an image that are repainted to see which rows show them."""


@dataclass
class Picture:
    """What one image, or several, became: the tower's input, its rows, the image tokens."""

    pixels: list[int]
    grid: tuple[int, int] | None
    stream: list[int]
    unread: int
    tokens: int


class TowerRuns(TowerForwards):
    """The tower of ``run``, run again."""

    @classmethod
    def of(cls, run: Run) -> TowerRuns:
        """The one of this run, made at the first call."""
        found = run.__dict__.get("_tower_runs")
        if found is None:
            found = run.__dict__["_tower_runs"] = cls(run)
        return found

    @cached_property
    def pictures(self) -> list[Picture]:
        """What one image of each of :data:`SIZES` becomes."""
        return [self._picture([test_image(*size)]) for size in SIZES]

    @cached_property
    def pair(self) -> Picture:
        """What two images in one prompt become, those of the first and the last size."""
        return self._picture([test_image(*SIZES[0]), test_image(*SIZES[-1])])

    def encode(self, images: list[Any]) -> Inputs:
        """The model inputs of a prompt with these images."""
        loaded = self.run.model.loaded
        text = " and ".join([image_marker(loaded)] * len(images))
        inputs = dict(loaded.processor(text=text, images=[images], return_tensors="pt").to(self.run.model.device))
        inputs[self.pixels_name] = inputs[self.pixels_name].to(self.run.inputs[self.pixels_name].dtype)
        return inputs

    def _picture(self, images: list[Any]) -> Picture:
        inputs = self.encode(images)
        pixels = inputs[self.pixels_name]
        _, stream, pattern = self._walk(inputs)
        unread = 0
        if pattern is not None:
            own = torch.eye(pattern.shape[-1], dtype=torch.bool, device=pattern.device)
            unread = int((pattern.masked_fill(own, 0).amax(dim=(1, 2)) == 0).sum())
        tokens = int((inputs["input_ids"] == self.run.model._module.config.image_token_id).sum())
        return Picture(list(pixels.shape), self.grid(inputs), list(stream.shape), unread, tokens)

    def grid(self, inputs: Inputs) -> tuple[int, int] | None:
        """Columns and rows of patches in one of the tower's rows, as the inputs tell; None where they do not."""
        positions = self.positions_in(inputs)
        if positions is not None:
            first = positions[0]
            extents = [int(first[:, axis].max()) + 1 for axis in self.axes]
            return extents[0], extents[1]
        pixels = inputs[self.pixels_name]
        if pixels.ndim != 4 or self.patch_side is None:
            return None
        return round(pixels.shape[-1] / self.patch_side), round(pixels.shape[-2] / self.patch_side)

    def positions_in(self, inputs: Inputs) -> torch.Tensor | None:
        """``[images, patches, 2]``: the positions in the inputs, negative on padding; None if there are none."""
        for tensor in inputs.values():
            if (
                isinstance(tensor, torch.Tensor)
                and tensor.ndim == 3
                and tensor.shape[-1] == 2
                and not tensor.is_floating_point()
            ):
                return tensor
        return None

    @cached_property
    def axes(self) -> tuple[int, int]:
        """Which element of a position counts columns, and which rows: the run's image is wider than high."""
        positions = self.positions_in(self.run.inputs)
        if positions is None or int(positions[..., 0].max()) >= int(positions[..., 1].max()):
            return 0, 1
        return 1, 0

    @cached_property
    def coordinates(self) -> torch.Tensor | None:
        """``[images, patches, 2]``: column and row of each patch, -1 on padding; None where nothing tells.

        Without positions in the inputs they are measured: a patch embedding is linear in its pixels, so ramps over the
        image's width and height show where each patch lies.
        """
        positions = self.positions_in(self.run.inputs)
        if positions is not None:
            return positions[..., list(self.axes)]
        if self.ramps is None or self.patch_side is None:
            return None
        lowest = self.ramps.amin(dim=1, keepdim=True)
        return ((self.ramps - lowest) / self.patch_side).round().long()

    @cached_property
    def ramps(self) -> torch.Tensor | None:
        """``[images, patches, 2]``: the first pixel's column and row of each patch, up to a constant."""
        pixels = self.run.inputs[self.pixels_name]
        if pixels.ndim != 4:
            return None
        across = torch.arange(pixels.shape[-1], device=pixels.device, dtype=torch.float32).expand(pixels.shape)
        down = torch.arange(pixels.shape[-2], device=pixels.device, dtype=torch.float32)[:, None].expand(pixels.shape)
        black = self._embed(torch.zeros_like(pixels))
        flat = self._embed(torch.ones_like(pixels)) - black
        found = []
        for ramp in (across, down):
            response = self._embed(ramp.to(pixels.dtype)) - black
            response = response - response[:, :1]
            found.append((response * flat).sum(-1) / flat.square().sum(-1))
        return torch.stack(found, dim=-1)

    @cached_property
    def patch_side(self) -> int | None:
        """Pixels between neighbouring patches; None where the pixels come already cut into patches."""
        if self.ramps is None:
            return None
        steps = (self.ramps[:, 1:] - self.ramps[:, :-1]).abs()
        steps = steps[steps > 0.5]
        return int(steps.min().round()) if steps.numel() else None

    def _embed(self, pixels: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            out = self.tower.patch_embed._module(pixels.to(self.run.dtype)).float()
        return out.flatten(2).transpose(1, 2) if out.ndim == 4 else out

    @cached_property
    def global_row(self) -> str:
        """`first`, `last`, `between` or `none`: the row of an image that shows all of it, seen by repainting parts."""
        image = test_image()
        base = self.encode([image])[self.pixels_name]
        answers = torch.ones(base.shape[0], dtype=torch.bool)
        for cell in range(CELLS * CELLS):
            left, top = cell % CELLS * image.width // CELLS, cell // CELLS * image.height // CELLS
            box = (left, top, left + image.width // CELLS, top + image.height // CELLS)
            painted = image.copy()
            painted.paste(image.crop(box).point(lambda level: 255 - level), box)
            answers &= (self.encode([painted])[self.pixels_name] != base).flatten(1).any(dim=1).cpu()
        if base.shape[0] == 1 or int(answers.sum()) != 1:
            return "none"
        return "last" if bool(answers[-1]) else "first" if bool(answers[0]) else "between"

    @cached_property
    def patch_count(self) -> int:
        """Patches of the run's image over all its rows, padding left out."""
        rows = self.moved(Row.PIXELS, "layer_input", BLOCKS, 0)
        return self.patches.shape[0] * self.patches.shape[1] if rows is None else int((rows & ~self.unread).sum())

    @cached_property
    def pooling_module(self) -> str | None:
        """Path of the outermost module after the blocks that returns fewer rows an image than it takes."""
        for station in sorted(self.stations, key=lambda at: at.path.count(".")):
            entering, leaving = station.entering, station.leaving
            if (
                station.after_blocks
                and entering is not None
                and leaving is not None
                and entering.ndim == leaving.ndim == 3
            ):
                if leaving.shape[1] < entering.shape[1]:
                    return station.path
        return None
