"""The tower in further forwards: on changed pixels and patches, and module by module.

All changes go into one batched forward, a row each (see :class:`Row`), as edits do; the walk over the tower's modules
is a plain forward. Everything is measured once a run and kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

import torch

from ..standard.stack import same
from ..standard.trace import Inputs, Key, Readings, Worker, by_host_and_name, repeat
from ..standard.trace import run as run_workers
from ..wiring.norms import is_norm
from ..wiring.symbols import first_tensor
from .edits import noise_like, row_of
from .identities import RELATIVE
from .run import Run

TOWER = "model.vision"
BLOCKS = "model.vision.layers[i]"


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


class TowerForwards:
    """The tower of ``run``, in further forwards."""

    def __init__(self, run: Run) -> None:
        if run.vision is None or not len(run.vision):
            raise ValueError("this run has no tower with blocks")
        self.run = run
        self.stack = run.vision
        self.tower = run.model.vision

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

    @property
    def rough(self) -> float:
        """Relative difference up to which a fit, or a norm's answer, counts as exact: far below any other answer."""
        return min(100 * self.tolerance, 0.1)

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
