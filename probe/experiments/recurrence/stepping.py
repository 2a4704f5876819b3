"""A step from what a model keeps after a prompt: the cache it fills, and one more token with it."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache

from ...instruments.extra import SHORT, decoder, forward, moved, noisy, once, token_ids
from ...instruments.rows import Change, Rows, hooks
from ...measure.run import Run
from ..answers import tolerance

CACHES = ("cache", "past_key_values", "cache_params", "state")
"""Names under which models take and return what they keep between steps."""


def cache_name(run: Run) -> str | None:
    """Under which name the model takes what it keeps; None where it takes nothing."""
    takes = inspect.signature(decoder(run).forward).parameters
    return next((name for name in CACHES if name in takes), None)


def filled(run: Run, ids: torch.Tensor) -> Any:
    """What a model keeps after a prompt; where it returns nothing, a cache that it was given."""
    name = cache_name(run)
    out = forward(run, ids, use_cache=True)
    cache = None if name is None else getattr(out, name, None)
    if cache is None and name is not None:
        forward(run, ids)  # what modules themselves have kept is forgotten
        cache = DynamicCache(config=run.model.text_config)
        forward(run, ids, use_cache=True, **{name: cache})
    return cache


@dataclass(frozen=True)
class Apart:
    """A step of a row beside another row, against the same step of it alone.

    Attributes:
        positions: how many positions the row is given in the batch; one is right.
        change: how far what it is given differs, relative to its size; only for one position.
    """

    positions: int
    change: float

    def mixes(self, close: float) -> bool:
        """Whether the two differ by more than ``close``."""
        return self.positions != 1 or self.change > close


@once
def apart_in_batch(run: Run) -> Apart:
    """Two prompts of other tokens and a step of each, and the first of them alone."""
    ids = torch.cat([token_ids(run, SHORT + 1), token_ids(run, SHORT + 1, seed=1)])
    together, alone = (_stepped(run, filled(run, each[:, :-1]), each[:, -1:])[0] for each in (ids, ids[:1]))
    same = together.shape[1:] == alone.shape[1:]
    return Apart(together.shape[1], moved(torch.cat([alone, together[:1]]), 1) if same else 0.0)


def step(run: Run, cache: Any, rows: Rows, changed: Collection[int] = ()) -> tuple[dict[int, torch.Tensor], Any]:
    """One token more, the same on every row, in which every block takes row 0's stream; one row at a time where rows
    of a step mix (:func:`apart_in_batch`) and are kept in a list of tensors.

    Args:
        cache: what was kept after a prompt of ``SHORT`` tokens.
        changed: the rows in which noise is added to that stream.

    Returns:
        What each block gives, ``[rows, 1, width]``, and what is kept afterwards.
    """
    if isinstance(cache, list) and apart_in_batch(run).mixes(tolerance(run)):
        return _row_by_row(run, cache, rows.total, changed)
    given: dict[Any, torch.Tensor] = {}
    entering, leaving = [], []
    noise = rows.changes(dict.fromkeys(changed, noisy))
    for index, envoy in enumerate(run.text.envoys):
        entering += [(envoy._module, rows.align), (envoy._module, noise)]
        leaving.append((envoy._module, rows.keep(given, index)))
    with hooks(entering, leaving):
        _, after = _stepped(run, cache, token_ids(run, 1, rows.total, seed=2))
    return given, after


def _row_by_row(
    run: Run, cache: list[torch.Tensor], total: int, changed: Collection[int]
) -> tuple[dict[int, torch.Tensor], list[torch.Tensor]]:
    """The same as :func:`step`, with a forward for each row."""
    taken: dict[int, torch.Tensor] = {}
    given: list[dict[Any, torch.Tensor]] = []
    after: list[list[torch.Tensor]] = []

    def taking(index: int, row: int) -> Change:
        def change(stream: torch.Tensor) -> torch.Tensor:
            held = taken.setdefault(index, stream.detach().clone())
            return noisy(held) if row in changed else held

        return change

    blocks = [(index, envoy._module) for index, envoy in enumerate(run.text.envoys)]
    for row in range(total):
        given.append({})
        entering = [(module, taking(index, row)) for index, module in blocks]
        with hooks(entering, [(module, Rows(1).keep(given[-1], index)) for index, module in blocks]):
            after.append(_stepped(run, [state[row : row + 1].clone() for state in cache], token_ids(run, 1, seed=2))[1])
    outputs = {index: torch.cat([each[index] for each in given]) for index, _ in blocks}
    return outputs, [torch.cat(parts) for parts in zip(*after, strict=True)]


def _stepped(run: Run, cache: Any, ids: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """The final stream of one token more, ``[rows, 1, width]``, and what is kept afterwards."""
    name = cache_name(run)
    inputs: dict[str, Any] = {} if name is None else {name: cache}
    if "position_ids" in inspect.signature(decoder(run).forward).parameters:
        inputs["position_ids"] = torch.full_like(ids, SHORT)
    mask = torch.ones(len(ids), SHORT + 1, dtype=torch.long, device=ids.device)
    out = forward(run, ids, attention_mask=mask, use_cache=True, **inputs)
    after = None if name is None else getattr(out, name, None)
    return out[0].detach().float(), cache if after is None else after
