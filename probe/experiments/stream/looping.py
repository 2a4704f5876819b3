"""Blocks that one forward runs several times, and which of their passes a standard name reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from ...instruments.extra import SHORT, forward, moved, noisy, token_ids
from ...instruments.listening import listening
from ...instruments.rows import Change, Rows, hooks, removed
from ...measure.rounding import digits
from ...measure.run import Run
from ...standard.trace import run as run_workers
from ..answers import explain, per_block, tolerance
from ..base import Measured, Quirk, Verdict, some

PASSES = ("loop_num_passes", "n_recurrent_loops", "num_loops", "num_recurrent_steps")
"""Config entries that may name how often blocks run."""


def looped_blocks(run: Run) -> Verdict:
    """Counts how often each block is called in one forward. Where one is called again, noise is added to what it gives
    on its first pass alone, on its last and on all of them, and the final stream compared with that of a row without
    noise; and twice what its `layer_output` reads is written back, to see which passes then return that.
    """
    order = calls(run)
    counts = [order.count(index) for index in range(len(run.text))]
    looped = [index for index, count in enumerate(counts) if count > 1]
    found = [None if count == 0 else count > 1 for count in counts]
    if not looped:
        return per_block(found, {"calls": max(counts, default=0)}, absent="A forward calls no block.")
    passes = sorted({counts[index] for index in looped})
    measured: Measured = {"passes": passes[0] if len(passes) == 1 else passes}
    measured["run"] = "each by itself" if _repeats_at_once(order) else "as a stretch"
    written = _written(run, looped[0])
    if written:
        measured["standard_names_mean"] = _which(written, counts[looped[0]])
    last = counts[looped[0]] - 1
    passes_of = {"the_first_pass": {0}, "the_last_pass": {last}, "every_pass": set(range(last + 1))}
    for name, effect in effects(run, looped[0], passes_of).items():
        measured[f"noise_on_{name}_moves_the_result"] = 0.0 if effect < tolerance(run) else digits(effect, 2)
    return per_block(found, measured, explain(run, measured, {"passes": PASSES}))


@listening
@contextmanager
def calls(run: Run) -> Iterator[list[int]]:
    """The blocks in the order in which a forward calls them."""
    order: list[int] = []

    def noting(index: int) -> Callable[..., None]:
        return lambda *_: order.append(index)

    with ExitStack() as stack:
        for index, envoy in enumerate(run.text.envoys):
            stack.enter_context(removed(envoy._module.register_forward_pre_hook(noting(index))))
        yield order


def _repeats_at_once(order: list[int]) -> bool:
    """Whether a block that runs again does so before any other block runs."""
    return any(one == two for one, two in zip(order, order[1:], strict=False))


def _which(written: list[bool], count: int) -> str:
    """In words, on which passes a written value was returned."""
    if all(written):
        return "every pass"
    places = [index for index, answer in enumerate(written) if answer]
    if places == [0]:
        return "the first pass"
    return "the last pass" if places == [count - 1] else "some of the passes"


def _written(run: Run, index: int) -> list[bool]:
    """For each pass of a block whether it returns what was written into its `layer_output`; empty where no pass does,
    or where the value cannot be written.
    """
    block = run.text.envoys[index]
    value = block.standard_values().get("layer_output")
    if value is None or block.refusal(value) is not None or not value.writable:
        return []
    given: list[torch.Tensor] = []
    returned: list[torch.Tensor] = []

    def write() -> None:
        given.append(block.layer_output.detach().clone() * 2)
        block.layer_output[:] = given[-1]

    def keep(_: torch.nn.Module, __: Any, output: Any) -> None:
        returned.append((output if isinstance(output, torch.Tensor) else output[0]).detach().clone())

    with removed(block._module.register_forward_hook(keep)):
        run_workers(run.model, run.inputs, [write])
    same = [output.shape == given[-1].shape and torch.equal(output, given[-1]) for output in returned]
    return same if any(same) else []


def effects(run: Run, index: int, wanted: Mapping[str, set[int]]) -> dict[str, float]:
    """By how much the final stream moves, relative to its size, where noise is on some passes of a block, by name."""
    rows = Rows(1 + len(wanted))
    done = [0]

    def change(output: torch.Tensor) -> torch.Tensor:
        changes: dict[int, Change] = {row: noisy for row, passes in enumerate(wanted.values(), 1) if done[0] in passes}
        done[0] += 1
        return rows.changes(changes)(output)

    with hooks(leaving=[(run.text.envoys[index]._module, change)]):
        final = forward(run, token_ids(run, SHORT, rows.total))[0]
    return {name: moved(final, row) for row, name in enumerate(wanted, 1)}


def _sentence(measured: Measured, blocks: list[int] | None, total: int) -> str:
    passes = measured.get("passes")
    times = "twice" if passes == 2 else f"{passes} times" if isinstance(passes, int) else "more than once"
    how = ", each again before the next" if measured.get("run") == "each by itself" else ""
    said = f"One forward runs {some(blocks or [], total)} {times}{how}, and a hook there fires on every pass"
    which = measured.get("standard_names_mean")
    said += "." if which is None else f"; a standard name reads and writes {which} alone."
    first, every = (measured.get(f"noise_on_{name}_moves_the_result") for name in ("the_first_pass", "every_pass"))
    if first is None or every is None:
        return said
    size = f"by {first:g} of its size" if first else "by less than a thousandth of its size"
    return (
        f"{said} Noise on the first pass of block {(blocks or [0])[0]} moves the final stream {size}, and noise on "
        f"every pass by {every:g}."
    )


QUIRKS = (Quirk("looped-blocks", "Looped blocks", "text", looped_blocks, _sentence),)
