"""How far an edit of the keys and values that a block attends with goes, where later blocks borrow them."""

from __future__ import annotations

import torch

from ...instruments.extra import SHORT, token_ids
from ...instruments.rows import Rows
from ...measure.edits import changed
from ...measure.run import Run
from ...standard.trace import Key, Worker
from ...values.hosts import Host
from .traced import aligned, groups, traced_forward

NAMES = ("attention_keys", "attention_values")


def edit_reaches(run: Run, lenders: set[int], borrowers: list[int]) -> bool | None:
    """Whether noise written into the lenders' ``attention_keys`` and ``attention_values`` is in the borrowers' too.

    One forward of two rows, of which the second is edited; every attention gets the first row's input on both, so that
    only what is handed on beside the stream can differ.

    Returns:
        Whether it reaches every borrower; None where it reaches some of them, or a block does not serve its keys and
        values.
    """
    rows = Rows(2)
    differs: dict[tuple[int, str], bool] = {}

    def editor(hosts: list[tuple[Key, Host]]) -> Worker:
        def worker() -> None:
            for key, host in hosts:
                value = getattr(host, key.name)
                first, second = rows.part(value, 0), rows.part(value, 1)
                if key.block in lenders:
                    second.copy_(changed(second, key.name, host))
                differs[key.block or 0, key.name] = not torch.equal(first, second)

        return worker

    ids = token_ids(run, SHORT, rows.total)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    traced_forward(run, inputs, [editor(hosts) for hosts in groups(run, NAMES)], aligned(run, rows))
    wanted = {(block, name) for block in (*lenders, *borrowers) for name in NAMES}
    if not wanted <= differs.keys() or not all(differs[block, name] for block in lenders for name in NAMES):
        return None
    reached = {differs[block, name] for block in borrowers for name in NAMES}
    return reached.pop() if len(reached) == 1 else None
