"""A prompt and then one token with its cache, as `generate` takes them: which values have one position at the step,
what an edit in the prompt's forward still reaches, and what the cache holds of each type of block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ...instruments.extra import CANNOT, SHORT, attentions, layer_types, moved, noisy, once, token_ids
from ...instruments.tap import Change, Rows, Tap, hooks
from ...measure.listing import listed
from ...measure.run import Run
from ...schema import Fact
from ..answers import tolerance
from ..attention.support import sliding_window
from ..base import in_words, some
from .cache import Stored, continued, returned

BACK = 3
"""How far from the prompt's end it is edited: within any window of the step, and not at its last position."""

LAST = "third last"
"""The same in words."""

TOGETHER = 4
"""Blocks whose edits at every position share a batch."""

LEAST = 7
"""Fewest rows of the batch: more than a stream has lanes, which would look like rows."""


@dataclass(frozen=True)
class Edit:
    """Noise in the stream that enters a block, at one position of the prompt."""

    block: int
    position: int = SHORT - BACK

    def __call__(self, row: torch.Tensor) -> torch.Tensor:
        """A row of the stream; it may have an axis for lanes, or positions before the tokens'."""
        axis = next((axis for axis, size in enumerate(row.shape) if size == SHORT), 0)
        changed = row.clone()
        place = changed.select(axis, row.shape[axis] - SHORT + self.position)
        place.copy_(noisy(place.clone()))
        return changed


@dataclass(frozen=True)
class Step:
    """One token after a prompt of :data:`~probe.instruments.extra.SHORT`.

    Attributes:
        given: for each block how many positions it gives at the step.
        queries, keys: for each block how many positions its queries and its keys have then; None where neither were
            seen.
        reach: for each edit by how much the step's logits move, relative to the largest of them.
    """

    given: list[int]
    queries: list[int | None]
    keys: list[int | None]
    reach: list[float]


@once
def step(run: Run) -> Step | str:
    """A step after a prompt that was edited where the stream enters each block, at one position; why there is none
    otherwise.
    """
    return _stepped(run, [Edit(block) for block in range(len(run.text))])


def _stepped(run: Run, edits: list[Edit]) -> Step | str:
    """A batch with a row for each edit in the prompt's forward; the reason where the model keeps no cache that it
    returns, does not go on with it, or takes the rows of a batch for positions at the step.
    """
    blocks = [envoy._module for envoy in run.text.envoys]
    rows = Rows(max(len(edits) + 1, LEAST))
    ids, after = token_ids(run, SHORT, rows.total), token_ids(run, 1, rows.total, seed=2)
    editing: list[tuple[torch.nn.Module, Change]] = [
        (blocks[edit.block], rows.change(index + 1, edit)) for index, edit in enumerate(edits)
    ]
    prompt: dict[int, torch.Tensor] = {}
    held: dict[int, torch.Tensor] = {}
    tap, called = Tap(attentions(run)), "a prompt's forward with a cache"
    try:
        with torch.no_grad():
            with hooks(editing, [(block, rows.keep(prompt, index)) for index, block in enumerate(blocks)]):
                kept = returned(run.model._module(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=True))
            if kept is None:
                return "the model returns no cache"
            called = "one token more with that cache"
            with hooks((), [(block, rows.keep(held, index)) for index, block in enumerate(blocks)]), tap:
                out = run.model._module(input_ids=after, use_cache=True, **{kept[0]: kept[1]})
    except CANNOT as error:
        return f"{called} raises {in_words(error)}"
    given = [SHORT * held[index].shape[1] // prompt[index].shape[1] for index in range(len(blocks))]
    if rows.total in given:
        return "at a step of several rows the blocks return a position for each row"
    return Step(
        given,
        [None if tapped.queries is None else tapped.queries.shape[2] for tapped in tap.blocks],
        [None if tapped.keys is None else tapped.keys.shape[2] for tapped in tap.blocks],
        [moved(out.logits[:, -1], index + 1) for index in range(len(edits))],
    )


def generation_facts(run: Run) -> list[Fact]:
    """What a step gives and what reaches it, or why there is none; what the cache holds of each type of block."""
    taken = step(run)
    facts = [_none(taken)] if isinstance(taken, str) else [_positions(run, taken), _reach(run, taken)]
    before, _ = continued(run)
    return [*facts, *_by_type(run, before)]


def _none(why: str) -> Fact:
    said = f"No step with a cache was measured: {why}."
    return Fact(name="no_step", label="No step with a cache", value=0, statement=said)


def _positions(run: Run, taken: Step) -> Fact:
    given = sorted(set(taken.given))
    said = f"At a step with a cache every block returns {_either(given)} position{'s' if given != [1] else ''}"
    counts = sorted({count for count in taken.keys if count is not None})
    measured: dict[str, Any] = {"prompt": SHORT}
    if counts:
        queries = sorted({count for count in taken.queries if count is not None})
        measured |= {"queries": queries, "keys": counts}
        held = listed([f"{count}{where}" for count, where in _where(run, taken.keys, counts)])
        said += f"; there attention has queries of {_either(queries)}, and keys and values of {held}"
        said += f", {SHORT} of them the prompt's" if counts == [SHORT + 1] else f", after a prompt of {SHORT}"
    label = "Positions at a step"
    return Fact(name="step_positions", label=label, value=max(given), measured=measured, statement=f"{said}.")


def _where(run: Run, keys: list[int | None], counts: list[int]) -> list[tuple[int, str]]:
    """Each number of keys, with the blocks that have it: by type where each type has one number."""
    if len(counts) == 1:
        return [(counts[0], "")]
    types: dict[str, set[int]] = {}
    for kind, count in zip(layer_types(run), keys, strict=True):
        types.setdefault(kind, set()).update([] if count is None else [count])
    found = []
    for count in counts:
        named = [f"`{kind}`" for kind, held in types.items() if held == {count}]
        blocks = [index for index, other in enumerate(keys) if other == count]
        apart = all(len(held) < 2 for held in types.values())
        found.append((count, f" on {' and '.join(named) if apart else some(blocks, len(keys))}"))
    return found


def _either(counts: list[int]) -> str:
    return " or ".join(map(str, counts))


def _reach(run: Run, taken: Step) -> Fact:
    """Which blocks' edits reach the step; where one misses it, at which positions of the prompt an edit reaches it."""
    total = len(taken.reach)
    reached = [index for index, change in enumerate(taken.reach) if change > tolerance(run)]
    missed = [index for index in range(total) if index not in reached]
    where = "any one block" if not missed else some(reached, total)
    where = f"any one of {where}" if missed and len(reached) > 1 else where
    what = f"An edit of the stream at the {LAST} position of the prompt, made in the prompt's forward where it enters"
    said = [f"{what} {where}, reaches a later step's logits by way of the cache"]
    if not reached:
        said = [f"{what} a block, reaches no later step's logits"]
    measured: dict[str, Any] = {"blocks": [*reached]}
    groups: dict[tuple[int, ...], list[int]] = {}
    for block, positions in _elsewhere(run, missed).items():
        groups.setdefault(positions, []).append(block)
        measured[f"positions_of_block_{block}"] = [*positions]
    for positions, blocks in groups.items():
        enters = f"made where it enters {some(blocks, total)}, an edit"
        at = some([*positions], 0, "position", "positions")
        said.append(
            f"{enters} reaches the logits only at {at} of the {SHORT}"
            if positions
            else f"{enters} at any of the {SHORT} positions reaches none of them"
        )
    return Fact(
        name="edits_of_the_prompt_reach", label="Edits of the prompt reach", value=len(reached), unit="blocks",
        measured=measured, statement=f"{'; '.join(said)}.",
    )  # fmt: skip


def _elsewhere(run: Run, blocks: list[int]) -> dict[int, tuple[int, ...]]:
    """For each block the positions of the prompt at which an edit reaches the step."""
    found: dict[int, tuple[int, ...]] = {}
    for first in range(0, len(blocks), TOGETHER):
        edits = [Edit(block, at) for block in blocks[first : first + TOGETHER] for at in range(SHORT)]
        taken = _stepped(run, edits)
        if isinstance(taken, str):
            continue
        for edit, change in zip(edits, taken.reach, strict=True):
            reaching = (edit.position,) if change > tolerance(run) else ()
            found[edit.block] = found.get(edit.block, ()) + reaching
    return found


def _by_type(run: Run, before: list[Stored]) -> list[Fact]:
    """What stands in the cache after a prompt longer than any window, for each type of block; what a window leaves of
    the positions is told beside that window.
    """
    types = layer_types(run)
    if len(before) != len(types) or not any(map(_filled, before[1:])):  # a cache without layers is one for all blocks
        return []
    held: dict[str, set[str]] = {}
    measured: dict[str, Any] = {}
    cut = sliding_window(run)
    windows = dict.fromkeys(cut.blocks or [], cut.measured.get("window"))
    for index, (kind, block) in enumerate(zip(types, before, strict=True)):
        held.setdefault(kind, set()).add(_holds(block, windows.get(index)))
        counted = {
            "positions": block.positions if block.size else 0,
            "rest_bytes": block.rest,
            "state_bytes": block.state,
        }
        for what, count in counted.items():
            counts = measured.setdefault(f"{what}_of_{kind}", []) if count else []
            counts += [count] * (count not in counts)
    said = "; ".join(f"`{kind}` {' or '.join(sorted(what))}" for kind, what in held.items())
    return [
        Fact(
            name="cache_by_block_type", label="Cache by block type", value=len(held), unit="types",
            measured=measured,
            statement=f"What the cache holds of a block after a prompt longer than any window: {said}.",
        )
    ]  # fmt: skip


def _filled(block: Stored) -> bool:
    return bool(block.size or block.state)


def _holds(block: Stored, window: int | None) -> str:
    left = f" (one fewer than its window of {window})" if window is not None and block.positions == window - 1 else ""
    parts = [f"{block.positions} positions{left}"] if block.size else []
    parts += [f"{block.rest:,} bytes that grow, but not by an entry a position"] if block.rest else []
    parts += [f"a state of {block.state:,} bytes"] if block.state else []
    return listed(parts) or "nothing"
