"""Blocks that a call shortens: with only the last logits asked for, some run on the last positions alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from ...instruments.extra import FEW, accepts
from ...instruments.listening import listening
from ...instruments.tap import removed
from ...measure.run import Run
from ..answers import per_block
from ..base import Quirk, Verdict, some


def shortened_blocks(run: Run) -> Verdict:
    """Asks for the last logit only, as generation does: a block whose output then has fewer positions than the prompt
    makes the answer yes.
    """
    if not accepts(run, "logits_to_keep"):
        return Verdict("n/a", why="The model's forward cannot be asked for the last logits only.")
    sizes = _sizes(run)
    whole = max(sizes.values(), default=0)
    short = [None if index not in sizes else sizes[index] < whole for index in range(len(run.text))]
    kept = FEW * min(sizes.values(), default=0) // max(whole, 1)
    return per_block(short, {"prompt": FEW, "positions_run": kept} if any(short) else {"prompt": FEW})


@listening
@contextmanager
def _sizes(run: Run) -> Iterator[dict[int, int]]:
    """The size of what each block gives."""
    sizes: dict[int, int] = {}
    with ExitStack() as stack:
        for index, envoy in enumerate(run.text.envoys):
            stack.enter_context(removed(envoy._module.register_forward_hook(_sizing(sizes, index))))
        yield sizes


def _sizing(sizes: dict[int, int], index: int) -> Callable[..., None]:
    def size(_: torch.nn.Module, __: Any, output: Any) -> None:
        sizes[index] = (output if isinstance(output, torch.Tensor) else output[0]).numel()

    return size


QUIRKS = (
    Quirk(
        "shortened-blocks",
        "Blocks shortened in a call",
        "text",
        shortened_blocks,
        lambda m, b, n: (
            f"A call that asks for the last logit only, as generation does, runs {some(b or [], n)} on the last "
            "position alone: what is read there has one position, not the prompt's."
        ),
    ),
)
