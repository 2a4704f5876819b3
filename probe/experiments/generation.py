"""A prompt and then one token with its cache, as `generate` takes them: which values have one position at the step,
what an edit in the prompt's forward still reaches, and what the cache holds of each type of block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..instruments.extra import SHORT, attentions, layer_types, moved, noisy, once, token_ids
from ..instruments.tap import Change, Rows, Tap, hooks
from ..measure.run import Run
from ..schema import Fact
from .answers import tolerance
from .base import some
from .cache import CANNOT, Stored, continued, returned

BACK = 3
"""How far from the prompt's end it is edited: within any window of the step, and not at its last position."""

LEAST = 7
"""Fewest rows of the batch: more than a stream has lanes, which would look like rows."""


@dataclass(frozen=True)
class Step:
    """One token after a prompt of :data:`~probe.instruments.extra.SHORT`.

    Attributes:
        given: for each block how many positions it gives at the step.
        queries, keys: for each block how many positions its queries and its keys have then; None where neither were
            seen.
        reach: for each block by how much the step's logits move for an edit of the stream that enters it at one
            position of the prompt, relative to the largest of them.
    """

    given: list[int]
    queries: list[int | None]
    keys: list[int | None]
    reach: list[float]


@once
def step(run: Run) -> Step | None:
    """A batch whose rows edit one block each in the prompt's forward; None where the model keeps no cache that it
    returns, does not go on with it, or takes the rows of a batch for positions at the step.
    """
    blocks = [envoy._module for envoy in run.text.envoys]
    rows = Rows(max(len(blocks) + 1, LEAST))
    ids, after = token_ids(run, SHORT, rows.total), token_ids(run, 1, rows.total, seed=2)
    editing: list[tuple[torch.nn.Module, Change]] = [
        (block, rows.change(index + 1, _edited)) for index, block in enumerate(blocks)
    ]
    prompt: dict[int, torch.Tensor] = {}
    held: dict[int, torch.Tensor] = {}
    tap = Tap(attentions(run))
    try:
        with torch.no_grad():
            with hooks(editing, [(block, rows.keep(prompt, index)) for index, block in enumerate(blocks)]):
                kept = returned(run.model._module(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=True))
            if kept is None:
                return None
            with hooks((), [(block, rows.keep(held, index)) for index, block in enumerate(blocks)]), tap:
                out = run.model._module(input_ids=after, use_cache=True, **{kept[0]: kept[1]})
    except CANNOT:
        return None
    given = [SHORT * held[index].shape[1] // prompt[index].shape[1] for index in range(len(blocks))]
    if rows.total in given:
        return None
    return Step(
        given,
        [None if tapped.queries is None else tapped.queries.shape[2] for tapped in tap.blocks],
        [None if tapped.keys is None else tapped.keys.shape[2] for tapped in tap.blocks],
        [moved(out.logits[:, -1], index + 1) for index in range(len(blocks))],
    )


def _edited(row: torch.Tensor) -> torch.Tensor:
    """A row of the stream, noise at one position; it may have an axis for lanes, or positions before the tokens'."""
    axis = next((axis for axis, size in enumerate(row.shape) if size == SHORT), 0)
    changed = row.clone()
    place = changed.select(axis, row.shape[axis] - BACK)
    place.copy_(noisy(place.clone()))
    return changed


def generation_facts(run: Run) -> list[Fact]:
    """What a step gives and what reaches it, and what the cache holds of each type of block."""
    taken = step(run)
    facts = [] if taken is None else [_positions(taken), _reach(run, taken)]
    before, _ = continued(run)
    return [*facts, *_by_type(run, before)]


def _positions(taken: Step) -> Fact:
    given = sorted(set(taken.given))
    said = f"At a step with a cache every block gives {_either(given)} position{'s' if given != [1] else ''}"
    counts = sorted({count for count in taken.keys if count is not None})
    measured: dict[str, Any] = {"prompt": SHORT}
    if counts:
        queries = sorted({count for count in taken.queries if count is not None})
        measured |= {"queries": queries, "keys": counts}
        said += f"; queries have {_either(queries)}, keys and values {_either(counts)} after a prompt of {SHORT}"
    label = "Positions at a step"
    return Fact(name="step_positions", label=label, value=max(given), measured=measured, statement=f"{said}.")


def _either(counts: list[int]) -> str:
    return " or ".join(map(str, counts))


def _reach(run: Run, taken: Step) -> Fact:
    total = len(taken.reach)
    reached = [index for index, change in enumerate(taken.reach) if change > tolerance(run)]
    what = "An edit of the stream at an earlier position, made in the prompt's forward where it enters"
    missed = [index for index in range(total) if index not in reached]
    said = f"{what} {some(reached, total)}, reaches a later step's logits by way of the cache"
    if not reached:
        said = f"{what} a block, reaches no later step's logits: the cache keeps nothing of it"
    elif missed:
        said += f"; where it enters {some(missed, total)}, it reaches none"
    return Fact(
        name="edits_of_the_prompt_reach", label="Edits of the prompt reach", value=len(reached), unit="blocks",
        measured={"blocks": [*reached]}, statement=f"{said}.",
    )  # fmt: skip


def _by_type(run: Run, before: list[Stored]) -> list[Fact]:
    """What stands in the cache after a prompt longer than any window, for each type of block."""
    types = layer_types(run)
    if len(before) != len(types) or not any(map(_filled, before[1:])):  # a cache without layers is one for all blocks
        return []
    held: dict[str, set[str]] = {}
    measured: dict[str, Any] = {}
    for kind, block in zip(types, before, strict=True):
        held.setdefault(kind, set()).add(_holds(block))
        for what, count in (("positions", block.positions if block.size else 0), ("state_bytes", block.state)):
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


def _holds(block: Stored) -> str:
    parts = [f"{block.positions} positions"] if block.size else []
    parts += [f"a state of {block.state:,} bytes"] if block.state else []
    return " and ".join(parts) or "nothing"
