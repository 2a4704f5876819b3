"""How a tower tells patches apart by place: what is added to them, and what turns in each attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..standard.stack import same
from .tower_runs import BLOCKS, Row, TowerRuns

ATTENTION = f"{BLOCKS}.self_attn"
TURNS = 1e-3
"""Least change of a query's dimension, relative to its largest, that counts as turning."""


@dataclass(frozen=True)
class Added:
    """What is added to the patch embeddings before the blocks.

    Attributes:
        only_position: the same on other pixels.
        varies: not the same at every patch.
        zero_on_padding: nothing is added to the padded rows; None where there are none.
        table: native path of the parameter that holds it; None where none was found.
        by: `row`: one vector a row; `axes`: the sum of one vector for the column and one for the row of the grid.
        table_shape: shape of that parameter.
        class_parameter: native path of the vector that is the class row before the addition.
    """

    only_position: bool
    varies: bool
    zero_on_padding: bool | None
    table: str | None
    by: str | None
    table_shape: tuple[int, ...] | None
    class_parameter: str | None


@dataclass(frozen=True)
class Turning:
    """What turns in one block's queries and keys.

    Attributes:
        columns, rows: dimensions of a head that change with the patch's column, and with its row.
        pairs: `adjacent` or `halves`: which dimensions turn together; None where neither keeps its length.
        class_row_turns: whether the class row's query differs from the projection's own; None without a class row.
        head_dim: width of a head.
    """

    columns: tuple[int, ...]
    rows: tuple[int, ...]
    pairs: str | None
    class_row_turns: bool | None
    head_dim: int


def patch_rows(runs: TowerRuns) -> list[int] | None:
    """For each patch its row in the tower's stream; None where the two cannot be matched."""
    moved = runs.moved(Row.PIXELS, "layer_input", BLOCKS, 0)
    if moved is None:
        return None
    rows: list[int] = moved.all(dim=0).nonzero().flatten().tolist()
    return rows if len(rows) == runs.patches.shape[1] else None


def added(runs: TowerRuns) -> Added | None:
    """What is added to the patches before the blocks; None where nothing is, or rows cannot be matched."""
    rows = patch_rows(runs)
    if rows is None:
        return None
    before = runs.pre_norm
    here = runs.stream if before is None else _entering(before.entering, runs)
    noisy = runs.seen(Row.PIXELS, "layer_input", BLOCKS, 0)
    if before is not None:
        noisy = _entering(next(at.entering for at in runs.noisy_stations if at.path == before.path), runs)
    patches = runs.seen(Row.PIXELS, "patch_embeddings")
    if here is None or noisy is None or patches is None:
        return None
    difference, other = here[:, rows] - runs.patches, noisy[:, rows] - patches
    scale = float(here.abs().max())
    if float(difference.abs().max()) <= runs.tolerance * scale:
        return None
    only = float((difference - other).abs().max()) <= runs.tolerance * scale
    hidden = runs.unread[:, rows]
    shown = difference[~hidden]
    varies = float((shown - shown[:1]).abs().max()) > runs.tolerance * scale
    zero = bool(difference[hidden].abs().max() <= runs.tolerance * scale) if hidden.any() else None
    table, by, shape = _table(runs, difference, hidden, rows)
    parameter = _class_parameter(runs, here, rows, table)
    return Added(only, varies, zero, table, by, shape, parameter)


def _entering(tensor: torch.Tensor | None, runs: TowerRuns) -> torch.Tensor | None:
    return None if tensor is None else tensor.reshape(runs.stream.shape)


def _parameters(runs: TowerRuns) -> dict[str, torch.Tensor]:
    """The tower's own parameters, those of its blocks left out."""
    inside = {id(p) for envoy in runs.stack.envoys for p in envoy._module.parameters()}
    return {
        name: p.detach().float()
        for name, p in runs.tower._module.named_parameters()
        if id(p) not in inside and p.is_floating_point()
    }


def _table(
    runs: TowerRuns, difference: torch.Tensor, hidden: torch.Tensor, rows: list[int]
) -> tuple[str | None, str | None, tuple[int, ...] | None]:
    """The parameter whose rows, or sums of two rows, are the difference at every patch."""
    shown = ~hidden[0]
    wanted = difference[0][shown]
    at = torch.tensor(rows, device=wanted.device)[shown]
    coordinates = runs.coordinates
    for name, parameter in _parameters(runs).items():
        if parameter.shape[-1] != wanted.shape[-1]:
            continue
        if parameter.ndim == 2 and parameter.shape[0] > int(at.max()) and same(parameter[at], wanted, runs.tolerance):
            return name, "row", tuple(parameter.shape)
        if parameter.ndim == 3 and parameter.shape[0] == 2 and coordinates is not None:
            places = coordinates[0][shown]
            if int(places.max()) < parameter.shape[1]:
                total = parameter[runs.axes[0], places[:, 0]] + parameter[runs.axes[1], places[:, 1]]
                if same(total, wanted, runs.tolerance):
                    return name, "axes", tuple(parameter.shape)
    return None, None, None


def _class_parameter(runs: TowerRuns, here: torch.Tensor, rows: list[int], table: str | None) -> str | None:
    others = [row for row in range(here.shape[1]) if row not in rows]
    if len(others) != 1:
        return None
    parameters = _parameters(runs)
    row = here[0, others[0]]
    if table is not None and parameters[table].ndim == 2 and parameters[table].shape[0] > others[0]:
        row = row - parameters[table][others[0]]
    for name, parameter in parameters.items():
        if parameter.numel() == row.numel() and same(parameter.flatten(), row, runs.tolerance):
            return name
    return None


def turning(runs: TowerRuns, block: int) -> Turning | None:
    """What turns on one block, seen on rows that enter it all alike; None where places or queries are not known."""
    rows, coordinates = patch_rows(runs), runs.coordinates
    queries = runs.seen(Row.EQUAL_ROWS, "attention_queries", ATTENTION, block)
    keys = runs.seen(Row.EQUAL_ROWS, "attention_keys", ATTENTION, block)
    if rows is None or coordinates is None or queries is None or keys is None:
        return None
    places = coordinates[0]
    here = torch.cat([queries[0][:, rows], keys[0][:, rows]])
    with_columns, with_rows = (_moving(here, places, axis) for axis in (0, 1))
    others = [row for row in range(queries.shape[2]) if row not in rows]
    shown = here[:, (places >= 0).all(-1)]
    return Turning(
        columns=tuple(with_columns),
        rows=tuple(with_rows),
        pairs=_pairs(shown, with_columns, with_rows, max(TURNS, runs.tolerance)),
        class_row_turns=_turns(runs, block, queries[0][:, others]) if others else None,
        head_dim=queries.shape[-1],
    )


def _moving(vectors: torch.Tensor, places: torch.Tensor, axis: int) -> list[int]:
    """Dimensions of ``vectors`` [heads, patches, head_dim] that change along one axis of the grid alone."""
    first: dict[int, int] = {}
    change = torch.zeros(vectors.shape[-1], device=vectors.device)
    for patch, place in enumerate(places.tolist()):
        if min(place) < 0:
            continue
        start = first.setdefault(place[1 - axis], patch)
        change = torch.maximum(change, (vectors[:, patch] - vectors[:, start]).abs().amax(0))
    found: list[int] = (change > TURNS * vectors.abs().max()).nonzero().flatten().tolist()
    return found


def _pairs(vectors: torch.Tensor, columns: list[int], rows: list[int], near: float) -> str | None:
    """Which dimensions keep their joint length while they turn."""
    groups = [columns, rows] if set(columns).isdisjoint(rows) else [sorted({*columns, *rows})]
    ways = {
        "adjacent": lambda n: [(i, i + 1) for i in range(0, n - 1, 2)],
        "halves": lambda n: [(i, i + n // 2) for i in range(n // 2)],
    }
    for name, pairing in ways.items():
        pairs = [(group[i], group[j]) for group in groups for i, j in pairing(len(group))]
        if pairs and all(_steady(vectors[..., i].square() + vectors[..., j].square(), near) for i, j in pairs):
            return name
    return None


def _steady(lengths: torch.Tensor, near: float) -> bool:
    return bool((lengths - lengths[:, :1]).abs().max() <= near * lengths.max())


def _turns(runs: TowerRuns, block: int, queries: torch.Tensor) -> bool | None:
    """Whether queries [heads, rows, head_dim] differ from what the projection and the norm after it give."""
    attention = runs.stack.envoys[block].self_attn
    entering = runs.seen(Row.EQUAL_ROWS, "attention_norm_output", BLOCKS, block)
    projection = getattr(attention, "q_proj", None)
    if entering is None or projection is None:
        return None
    with torch.no_grad():
        plain = projection._module(entering[:1, :1].to(runs.run.dtype)).unflatten(-1, (queries.shape[0], -1))
        norm = getattr(attention, "q_norm", None)
        if norm is not None:
            plain = norm._module(plain)
    wanted = plain.float()[0].transpose(0, 1).expand_as(queries)
    return not same(queries, wanted, max(TURNS, runs.tolerance))
