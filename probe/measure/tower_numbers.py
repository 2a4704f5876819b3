"""The numbers behind the words about a tower, measured on a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..standard.stack import same
from ..wiring.norms import is_norm
from .tower_pooling import Average, Shift, average, shift
from .tower_positions import Added, Turning, added, patch_rows, turning
from .tower_runs import BLOCKS, SIZES, Row, Station, TowerRuns


@dataclass(frozen=True)
class After:
    """A module between the blocks and the scatter: its path, whether it is a norm, rows before and after."""

    path: str
    norm: bool
    subtracts_mean: bool
    rows_in: int | None
    rows_out: int | None
    shape: tuple[int, ...]
    drops_class_row: bool


@dataclass(frozen=True)
class Shown:
    """What one image became: its size, the grid of a row, rows of the tower, padded entries, image tokens."""

    size: str
    grid: tuple[int, int] | None
    rows: int
    unread: int
    tokens: int


@dataclass(frozen=True)
class Numbers:
    """What was measured of a tower.

    Attributes:
        blocks: number of blocks.
        patches: patches in a row, padding included; None where a config does not determine it.
        grid: columns and rows of patches; None where they follow the image.
        length: rows' length, class rows included; None likewise.
        budget: how the length came about where images are padded, in words; None elsewhere.
        class_rows: places of the rows no pixel moves, from the end if negative.
        images: what the images tried became: the run's own first.
        global_row: where the row with the whole image is: `first`, `last`, `none`.
        padded: padded rows of the run's image; None where nothing ran.
        position_input: name of the input that gives patches their place, with its value on padding.
        reached: rows that a change of one patch reached in its own row of the tower, and in others.
        tokens: image tokens of a row of the tower, or of the run's image where rows are padded.
    """

    blocks: int
    pixels: str
    patch_embed: str
    patches: int | None
    grid: tuple[int, int] | None
    length: int | None
    budget: str | None
    class_rows: tuple[int, ...]
    images: tuple[Shown, ...]
    global_row: str
    padded: int | None
    position_input: tuple[str, int] | None
    added: Added | None
    pre_norm: str | None
    turning: tuple[Turning | None, ...]
    reached: tuple[int, int]
    other_rows: int
    unmasked: bool
    after: tuple[After, ...]
    norm_is_output: bool
    tokens: int | None
    ratio: float
    average: Average | None
    shift: Shift | None
    shapes: dict[str, tuple[int, ...]]
    config: Any
    root_config: Any
    seen_on: str | None = None

    @property
    def varies(self) -> bool:
        """Whether images of different shapes get different grids."""
        return len({image.grid for image in self.images}) > 1

    @property
    def tiles(self) -> bool:
        """Whether an image may take several rows."""
        return max(image.rows for image in self.images) > 1


def measure(runs: TowerRuns) -> Numbers:
    """The numbers of the tower of a run."""
    run = runs.run
    moved = runs.moved(Row.PIXELS, "layer_input", BLOCKS, 0)
    still = [] if moved is None else (~moved).all(dim=0).nonzero().flatten().tolist()
    length, patches = runs.stream.shape[1], runs.patches.shape[1]
    reach = runs.moved(Row.ONE_PATCH, "layer_output", BLOCKS, len(runs.stack) - 1)
    own = (0, 0) if reach is None else (int((reach[0] & ~runs.unread[0]).sum()), int(reach[1:].sum()))
    images = tuple(
        Shown(f"{width} × {height}", picture.grid, picture.stream[0], picture.unread, picture.tokens)
        for (width, height), picture in zip(SIZES, runs.pictures, strict=True)
    )
    features = run.root("image_features", "model.vision")
    shapes = {
        "patch_embeddings": runs.patches,
        "layer_input": runs.stream,
        "tower_output": runs.base("tower_output"),
        "image_features": features,
    }
    rows = runs.patches.shape[0]
    padded = int(runs.unread[0].sum())
    read = ~runs.unread[0]
    patterns = [
        pattern[0][:, read][:, :, read]
        for block in range(len(runs.stack))
        if (pattern := runs.pattern(block)) is not None
    ]
    return Numbers(
        blocks=len(runs.stack),
        pixels=runs.pixels_name,
        patch_embed=runs.tower._aliases.get("patch_embed", "patch_embed"),
        patches=patches,
        grid=images[0].grid,
        length=length,
        budget=None,
        class_rows=tuple(row - length if row >= patches else row for row in still),
        images=images,
        global_row=runs.global_row,
        padded=padded,
        position_input=_position_input(runs),
        added=added(runs),
        pre_norm=runs.pre_norm.path if runs.pre_norm else None,
        turning=tuple(turning(runs, block) for block in range(len(runs.stack))),
        reached=own,
        other_rows=rows - 1,
        unmasked=bool(patterns) and all(bool((pattern > 0).all()) for pattern in patterns),
        after=tuple(_after(runs)),
        norm_is_output=any(_gives(station, runs.base("tower_output"), runs) for station in _norms_after(runs)),
        tokens=features.shape[0] // (1 if padded else rows),
        ratio=runs.patch_count / features.shape[0],
        average=average(runs),
        shift=shift(runs),
        shapes={name: tuple(tensor.shape) for name, tensor in shapes.items() if tensor is not None}
        | {"pixels": tuple(run.inputs[runs.pixels_name].shape)},
        config=runs.tower._module.config,
        root_config=run.model._module.config,
    )


def _position_input(runs: TowerRuns) -> tuple[str, int] | None:
    positions = runs.positions_in(runs.run.inputs)
    if positions is None:
        return None
    name = next(name for name, tensor in runs.run.inputs.items() if tensor is positions)
    rows = patch_rows(runs)
    hidden = positions[runs.unread[:, rows]] if rows is not None and runs.unread.any() else positions[:0]
    return name, int(hidden.min()) if hidden.numel() and int(hidden.min()) == int(hidden.max()) else 0


def _norms_after(runs: TowerRuns) -> Iterator[Station]:
    for station in runs.stations:
        leaving = station.leaving
        if (
            station.after_blocks
            and leaving is not None
            and "." not in station.path
            and is_norm(station.module, leaving.shape[-1])
        ):
            yield station


def _gives(station: Station, wanted: torch.Tensor | None, runs: TowerRuns) -> bool:
    leaving = station.leaving
    return (
        wanted is not None
        and leaving is not None
        and leaving.shape == wanted.shape
        and same(leaving, wanted, runs.tolerance)
    )


def _after(runs: TowerRuns) -> Iterator[After]:
    """The tower's own children that began after the blocks, in order, and the projector."""
    output = runs.base("tower_output")
    for station in runs.stations:
        entering, leaving = station.entering, station.leaving
        if (
            not station.after_blocks
            or "." in station.path
            or entering is None
            or leaving is None
            or _holds_blocks(station, runs)
        ):
            continue
        norm = is_norm(station.module, leaving.shape[-1])
        dropped = (
            output is not None
            and entering.ndim == 3
            and entering.shape[1] < output.shape[1]
            and entering.shape[0] == output.shape[0]
        )
        yield After(
            path=station.path,
            norm=norm,
            subtracts_mean=norm and _subtracts_mean(station.module, entering, runs),
            rows_in=entering.shape[1] if entering.ndim == 3 else None,
            rows_out=leaving.shape[1] if leaving.ndim == 3 else None,
            shape=tuple(leaving.shape),
            drops_class_row=dropped,
        )


def _holds_blocks(station: Station, runs: TowerRuns) -> bool:
    return any(module is runs.stack.envoys[0]._module for module in station.module.modules())


def _subtracts_mean(norm: torch.nn.Module, value: torch.Tensor, runs: TowerRuns) -> bool:
    with torch.no_grad():
        plain, shifted = (norm((value + shift).to(runs.run.dtype)).float() for shift in (0.0, 3.0 * float(value.std())))
    return float((shifted - plain).abs().max()) < runs.rough * float(plain.abs().max())
