"""Whether what the last block returns decides the logits, where no chain of modules leads from the one to the other."""

from __future__ import annotations

from typing import Any

import torch

from ...instruments.extra import SHORT, token_ids
from ...instruments.rows import removed
from ...measure.rounding import one_digit
from ...measure.run import Run
from ...schema import Fact
from ..answers import tolerance


def tail_facts(run: Run) -> list[Fact]:
    """Puts what the last block returned for one prompt in the place of what it returns for another, and compares the
    logits with the first prompt's. Nothing is told where a chain of modules makes the logits from the stream, or where
    the shape of what the block returns depends on the prompt.
    """
    if run.model.readout.modules:
        return []
    block = run.text.envoys[-1]._module
    first, second = (token_ids(run, SHORT, seed=seed) for seed in (0, 1))
    returned: list[Any] = []
    with removed(block.register_forward_hook(lambda _, __, output: returned.append(_copied(output)))):
        wanted = _logits(run, first)
    calls, fits = iter(returned), True

    def instead(_: torch.nn.Module, __: Any, output: Any) -> Any:
        nonlocal fits
        other = next(calls, None)
        fits = fits and _shape(other) == _shape(output)
        return other if fits else None

    with removed(block.register_forward_hook(instead)):
        given = _logits(run, second)
    if not fits:
        return []
    size = float(wanted.abs().max())
    apart = float((given - wanted).abs().max()) / size
    if float((_logits(run, second) - wanted).abs().max()) / size <= tolerance(run):
        return []
    rounded = one_digit(apart)
    if apart > tolerance(run):
        statement = (
            "The logits take more than what the last block returns: put in the place of what it returns for another "
            f"prompt, it gives logits that miss the first prompt's by {rounded:g} of their largest."
        )
        return [Fact(name="logits_take_more", label="Logits beside the last block", value=rounded, statement=statement)]
    within = f"to within {rounded:g} of the largest" if apart else "exactly"
    statement = (
        "What the last block returns decides the logits: put in the place of what it returns for another prompt, it "
        f"gives the first prompt's logits {within}. A forward in which another block's `layer_output` is written over "
        "the last block's is a lens on that block."
    )
    return [Fact(name="lens_by_writing", label="Lens by writing", value=rounded, statement=statement)]


def _logits(run: Run, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        given = run.model._module(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)
    return given.logits.float()


def _shape(output: Any) -> torch.Size | None:
    """Of what a module returned, or of the first thing that it returned."""
    first = output[0] if isinstance(output, tuple) else output
    return first.shape if isinstance(first, torch.Tensor) else None


def _copied(output: Any) -> Any:
    """A copy of what a module returned, which nothing later changes in place."""
    if isinstance(output, torch.Tensor):
        return output.clone()
    return tuple(map(_copied, output)) if isinstance(output, tuple) else output
