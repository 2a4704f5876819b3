"""The tower run again: on changed pixels, changed patches, other images, and module by module.

All changes of one image go into one batched forward, a row each (see :class:`Row`), as edits do. Other images and the
walk over the tower's modules take plain forwards. Everything is measured once a run and kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

import torch

from ..checkpoints.images import test_image
from .anatomy import is_norm
from .edits import noise_like, row_of
from .identities import RELATIVE
from .run import Run, image_marker, same
from .symbols import first_tensor
from .trace import Inputs, Key, Readings, Worker, by_host_and_name, repeat
from .trace import run as run_workers

TOWER = "model.vision"
BLOCKS = "model.vision.layers[i]"
SIZES = ((57, 36), (40, 40), (20, 70))
"""Width and height of the images that are tried: the run's own, a square one, a tall one."""


class Row(IntEnum):
    """What is changed in each row of the batched forward."""

    CONTROL = 0
    AGAIN = 1
    """Nothing: how far it is from CONTROL is the noise of the arithmetic."""
    PIXELS = 2
    """Noise on every pixel."""
    ONE_PATCH = 3
    """Noise on the embedding of one patch of the first row."""
    EQUAL_PATCHES = 4
    """Every patch embedding set to the first one."""
    EQUAL_ROWS = 5
    """Every row entering a block set to the first one, on every block."""
    UNREAD_ROWS = 6
    """Noise on the rows of the first block's input that no other row attends to."""
    SCALED = 7
    """The outputs of the query, key and value projections doubled, every block entered as in CONTROL."""


PATCH = 1
"""The patch that ONE_PATCH changes."""


@dataclass
class Station:
    """A module of the tower outside its blocks, or the projector, as one forward passed it."""

    path: str
    module: torch.nn.Module
    entering: torch.Tensor | None
    leaving: torch.Tensor | None
    after_blocks: bool


@dataclass
class Picture:
    """What one image, or several, became: the tower's input, its rows, the image tokens."""

    pixels: list[int]
    grid: tuple[int, int] | None
    stream: list[int]
    unread: int
    tokens: int


class TowerRuns:
    """The tower of ``run``, run again."""

    def __init__(self, run: Run) -> None:
        if run.vision is None or not len(run.vision):
            raise ValueError("this run has no tower with blocks")
        self.run = run
        self.stack = run.vision
        self.tower = run.model.vision

    @classmethod
    def of(cls, run: Run) -> TowerRuns:
        """The one of this run, made at the first call."""
        found = run.__dict__.get("_tower_runs")
        if found is None:
            found = run.__dict__["_tower_runs"] = cls(run)
        return found

    def base(self, name: str, host: str = TOWER, block: int | None = None) -> torch.Tensor | None:
        """A value of the run itself, in float32."""
        value = self.run.readings.get(Key(host, block, name))
        return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    @property
    def patches(self) -> torch.Tensor:
        """``[images, patches, vision_hidden_size]``: the patch embeddings."""
        value = self.base("patch_embeddings")
        assert value is not None
        return value

    @property
    def stream(self) -> torch.Tensor:
        """``[images, rows, vision_hidden_size]``: what enters the first block."""
        value = self.base("layer_input", BLOCKS, 0)
        assert value is not None
        return value

    @property
    def pixels_name(self) -> str:
        return next(
            name
            for name, tensor in self.run.inputs.items()
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point()
        )

    @property
    def tolerance(self) -> float:
        """Relative difference up to which two results of this run's arithmetic count as equal."""
        return RELATIVE.get(self.run.dtype, RELATIVE[torch.float32])

    def pattern(self, block: int) -> torch.Tensor | None:
        """``[images, num_heads, query, key]``"""
        return self.base("attention_probabilities", f"{BLOCKS}.self_attn", block)

    @cached_property
    def unread(self) -> torch.Tensor:
        """``[images, rows]``, bool: rows to which no other row attends, on any block."""
        none = torch.ones(self.stream.shape[:2], dtype=torch.bool, device=self.stream.device)
        for block in range(len(self.stack)):
            pattern = self.pattern(block)
            if pattern is None:
                return torch.zeros_like(none)
            own = torch.eye(pattern.shape[-1], dtype=torch.bool, device=pattern.device)
            none &= pattern.masked_fill(own, 0).amax(dim=(1, 2)) == 0
        return none

    @cached_property
    def rows(self) -> Readings:
        """The batched forward's values, all rows together; see :meth:`seen`."""
        run, total = self.run, len(Row)
        inputs = repeat(run.inputs, total)
        pixels = row_of(inputs[self.pixels_name], Row.PIXELS, total)
        pixels.copy_(self.noisy(pixels))
        readings: Readings = {}
        handles = [module.register_forward_hook(_double) for module in self._projections()]
        try:
            workers = [self._edit_patches, self._edit_rows, *_readers(run, readings)]
            run_workers(run.model, inputs, workers)
        finally:
            for handle in handles:
                handle.remove()
        return readings

    def noisy(self, pixels: torch.Tensor) -> torch.Tensor:
        return pixels + noise_like(pixels).to(pixels.dtype) * pixels.float().std().to(pixels.dtype)

    def seen(self, row: Row, name: str, host: str = TOWER, block: int | None = None) -> torch.Tensor | None:
        """A value in one row of the batched forward, in float32."""
        value = self.rows.get(Key(host, block, name))
        return None if value is None else row_of(value, row, len(Row)).float()

    def moved(self, row: Row, name: str, host: str = TOWER, block: int | None = None) -> torch.Tensor | None:
        """Where a value of ``row`` is not CONTROL's, over all but its last axis; None where there is no such value."""
        here, control, again = (self.seen(at, name, host, block) for at in (row, Row.CONTROL, Row.AGAIN))
        if here is None or control is None or again is None:
            return None
        noise = float((again - control).abs().max())
        bound = 8 * noise + 1e-6 * float(control.abs().max())
        return (here - control).abs().amax(-1) > bound

    def _projections(self) -> list[torch.nn.Module]:
        found = []
        for block in self.stack.envoys:
            for name in ("q_proj", "k_proj", "v_proj"):
                envoy = getattr(block.self_attn, name, None)
                if envoy is not None:
                    found.append(envoy._module)
        return found

    def _edit_patches(self) -> None:
        embedded = self.tower.patch_embeddings
        one = row_of(embedded, Row.ONE_PATCH, len(Row))
        one[0, PATCH] += noise_like(one[0, PATCH]).to(one.dtype) * one.float().std().to(one.dtype)
        equal = row_of(embedded, Row.EQUAL_PATCHES, len(Row))
        equal.copy_(equal[:1, :1].clone().expand_as(equal))

    def _edit_rows(self) -> None:
        for index, block in enumerate(self.tower.layers):
            stream = block.layer_input
            equal = row_of(stream, Row.EQUAL_ROWS, len(Row))
            equal.copy_(equal[:1, :1].clone().expand_as(equal))
            row_of(stream, Row.SCALED, len(Row)).copy_(row_of(stream, Row.CONTROL, len(Row)))
            if index == 0:
                hidden = row_of(stream, Row.UNREAD_ROWS, len(Row))
                hidden += noise_like(hidden).to(hidden.dtype) * self.unread[..., None]

    @cached_property
    def stations(self) -> list[Station]:
        """The tower's modules outside its blocks, and the projector, in the order they returned."""
        return self._walk(self.run.inputs)[0]

    @cached_property
    def noisy_stations(self) -> list[Station]:
        """The same on noisy pixels."""
        pixels = self.run.inputs[self.pixels_name]
        return self._walk({**self.run.inputs, self.pixels_name: self.noisy(pixels)})[0]

    def _walk(self, inputs: Inputs) -> tuple[list[Station], torch.Tensor, torch.Tensor | None]:
        """One plain forward: the stations, what entered the first block, and the first block's pattern."""
        blocks = [envoy._module for envoy in self.stack.envoys]
        inside = {id(module) for block in blocks for module in block.modules()}
        found: list[Station] = []
        caught: dict[str, Any] = {}
        handles = []

        def watch(path: str, module: torch.nn.Module) -> None:
            def leave(_: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
                entering, leaving = first_tensor([*args, *kwargs.values()]), first_tensor(output)
                found.append(Station(path, module, _kept(entering), _kept(leaving), "done" in caught))

            handles.append(module.register_forward_hook(leave, with_kwargs=True))

        for path, module in self.tower._module.named_modules():
            if path and id(module) not in inside:
                watch(path, module)
        projector = self.projector
        if projector is not None:
            watch("projector", projector)
        handles.append(
            blocks[0].register_forward_hook(
                lambda _, args, kwargs, out: caught.update(stream=_kept(first_tensor([*args, *kwargs.values()]))),
                with_kwargs=True,
            )
        )
        handles.append(blocks[-1].register_forward_hook(lambda *_: caught.update(done=True)))
        attention = self.stack.envoys[0].self_attn._module
        handles.append(
            attention.register_forward_hook(
                lambda _, __, out: caught.update(pattern=out[1] if isinstance(out, tuple) and len(out) > 1 else None)
            )
        )
        try:
            with torch.no_grad():
                self.run.model._module(**inputs)
        finally:
            for handle in handles:
                handle.remove()
        return found, caught["stream"], caught.get("pattern")

    @property
    def projector(self) -> torch.nn.Module | None:
        """The last module before the scatter."""
        return self.run.model.projector._module if "projector" in self.run.model._aliases else None

    @cached_property
    def pre_norm(self) -> Station | None:
        """The norm whose output enters the first block, if one does."""
        width = self.stream.shape[-1]
        for station in self.stations:
            leaving = station.leaving
            if leaving is not None and leaving.shape[-1] == width and leaving.numel() == self.stream.numel():
                if same(leaving.reshape(self.stream.shape), self.stream, self.tolerance) and is_norm(
                    station.module, width
                ):
                    return station
        return None

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
        return dict(loaded.processor(text=text, images=[images], return_tensors="pt").to(self.run.model.device))

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
        """``[images, patches, 2]``: the positions the inputs give each patch, negative on padding; None if they give none."""
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
        """``[images, patches, 2]``: column and row of each patch, -1 on padding; None where neither inputs nor pixels tell.

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


def _kept(tensor: torch.Tensor | None) -> torch.Tensor | None:
    if tensor is None:
        return None
    kept = tensor.detach().clone()
    return kept if kept.is_complex() else kept.float()


def _double(_: torch.nn.Module, __: Any, output: torch.Tensor) -> torch.Tensor:
    output = output.clone()
    row_of(output, Row.SCALED, len(Row)).mul_(2)
    return output


READ = {
    TOWER: ("patch_embeddings", "tower_output", "image_features"),
    BLOCKS: ("layer_input", "attention_norm_output", "layer_output"),
    f"{BLOCKS}.self_attn": ("attention_queries", "attention_keys", "attention_values"),
    "model": ("logits",),
}
"""What the batched forward reads."""


def _readers(run: Run, readings: Readings) -> list[Worker]:
    def reader(hosts: list[Any]) -> Worker:
        def worker() -> None:
            for key, host in hosts:
                readings[key] = getattr(host, key.name).detach().clone()

        return worker

    wanted = by_host_and_name(run.model, lambda key: key.name in READ.get(key.host, ()))
    return [reader(hosts) for hosts in wanted.values()]
