"""Quirks of how a tower knows places and masks: rotary, added positions, who sees whom."""

from __future__ import annotations

import math
from typing import Any

from ...measure.rounding import one_digit
from ...measure.tower_positions import added, patch_rows, turning
from ...measure.tower_runs import BLOCKS, Row, TowerRuns
from ..base import Measured, Quirk, Verdict, some
from .blocks import on_blocks, on_tower


def _rotary(runs: TowerRuns) -> Verdict:
    """The same vector in every row: which dimensions of a query change with a patch's column, which with its row?"""
    seen = {block: turning(runs, block) for block in range(len(runs.stack))}
    known = {block: found for block, found in seen.items() if found is not None}
    if len(known) < len(seen):
        return Verdict("inconclusive", why="Where a patch lies, or its queries, could not be measured.")
    turned = [block for block, found in known.items() if found.columns or found.rows]
    if not turned:
        return Verdict("no", measured={"dimensions_that_turn": 0, "head_dim": known[0].head_dim})
    first = known[turned[0]]
    measured: Measured = {
        "columns": list(first.columns),
        "rows": list(first.rows),
        "head_dim": first.head_dim,
        "pairs": first.pairs,
    }
    if first.class_row_turns is not None:
        measured["class_row_turns"] = first.class_row_turns
    if any(known[block] != first for block in turned):
        measured["alike_on_every_block"] = False
    return on_blocks(turned, len(seen), measured)


def _positions(runs: TowerRuns) -> Verdict:
    """What enters the first block less the patch embedding: another vector at each place, whatever the pixels?"""
    if patch_rows(runs) is None:
        return Verdict("inconclusive", why="Patches and rows of the tower could not be matched.")
    found = added(runs)
    if found is None or not found.varies:
        return Verdict("no", measured={"added": found is not None})
    measured: Measured = {
        "table": found.table,
        "table_shape": list(found.table_shape or ()),
        "by": found.by,
        "norm_after": runs.pre_norm and runs.pre_norm.path,
    }
    if not found.only_position:
        return Verdict(
            "inconclusive", measured=measured, why="What is added to the patch embeddings changes with the pixels."
        )
    return Verdict("yes", measured=measured)


def _unmasked(runs: TowerRuns) -> Verdict:
    """Does a change of one patch reach every row of its image, before and after it, and no row of another?"""
    if runs.pattern(0) is None:
        return Verdict("n/a", why="This load gives no attention pattern of the tower.")
    read = ~runs.unread
    blocks, least = [], math.inf
    for block in range(len(runs.stack)):
        pattern = runs.pattern(block)
        assert pattern is not None
        among = pattern.amin(dim=1)[read[:, :, None] & read[:, None, :]]
        least = min(least, float(among.min()))
        if bool((among > 0).all()):
            blocks.append(block)
    moved = runs.moved(Row.ONE_PATCH, "layer_output", BLOCKS, len(runs.stack) - 1)
    measured: Measured = {"patch_rows": int(read[0].sum()), "rows": read.shape[0], "least_attention": one_digit(least)}
    if moved is not None:
        measured |= {"reached_in_its_row": int((moved[0] & read[0]).sum()), "reached_in_others": int(moved[1:].sum())}
    return on_blocks(blocks, len(runs.stack), measured)


def _ranges(dimensions: list[int]) -> str:
    if dimensions and dimensions == list(range(dimensions[0], dimensions[-1] + 1)):
        return f"{dimensions[0]} to {dimensions[-1]}"
    return ", ".join(map(str, dimensions))


def _say_rotary(m: Measured, blocks: list[int] | None, total: int) -> str:
    where = some(blocks or [], total)
    shared = set(m["columns"]) & set(m["rows"])
    if shared or not m["columns"] or not m["rows"]:
        what = (
            f"dimensions {_ranges(sorted({*m['columns'], *m['rows']}))} of {m['head_dim']} turn with the patch's place"
        )
    else:
        columns, rows = _ranges(m["columns"]), _ranges(m["rows"])
        what = f"of a head's {m['head_dim']} dimensions {columns} turn with the patch's column and {rows} with its row"
    pairs = {"adjacent": ", in adjacent pairs", "halves": ", paired across the two halves of each part", None: ""}[
        m["pairs"]
    ]
    still = "; the class row does not turn" if m.get("class_row_turns") is False else ""
    return f"In queries and keys on {where}, {what}{pairs}{still}."


def _say_positions(m: Measured, *_: Any) -> str:
    how = {
        "row": f"a row of {m['table']}",
        "axes": f"a column's and a row's vector from {m['table']}",
        None: "a vector that depends on its place alone",
    }[m["by"]]
    after = f", and {m['norm_after']} norms the sum" if m["norm_after"] else ""
    return f"patch_embeddings are not what enters the first block: each patch gets {how} added{after}."


def _say_unmasked(m: Measured, blocks: list[int] | None, total: int) -> str:
    apart = f", and none of the {m['rows'] - 1} other rows" if m["rows"] > 1 else ""
    where, reached = some(blocks or [], total), m["reached_in_its_row"]
    whom = "every patch of its row, later ones too"
    return f"On {where} a patch attends to {whom}: a change of one reached all {reached}{apart}."


QUIRKS: tuple[Quirk, ...] = (
    Quirk("vision-rotary", "2D rotary", "vision", on_tower(_rotary), _say_rotary),
    Quirk("tower-positions", "Learned patch positions", "vision", on_tower(_positions), _say_positions),
    Quirk("unmasked-tower", "Unmasked tower", "vision", on_tower(_unmasked), _say_unmasked),
)
"""Quirks of places and masks."""
