"""What kind of norms: whether they subtract a mean, and whether their gain is one plus the weight."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..measure.rounding import digits
from ..measure.run import Run
from .answers import per_block, small, tolerance
from .base import Measured, Quirk, Verdict, some


def _norms(run: Run, index: int) -> Iterator[torch.nn.Module]:
    """The norms before and after a block's sublayers."""
    block = run.text.envoys[index]._module
    for term in run.text.anatomy[index].terms:
        for path in (term.pre_norm, term.post_norm):
            if path is not None:
                yield block.get_submodule(path)


def _stream(run: Run, index: int) -> torch.Tensor | None:
    entering = run.text.get(index, "", "layer_input")
    return None if entering is None else entering.to(run.dtype)


def layernorm(run: Run) -> Verdict:
    """Adds one number to every element of what a norm takes: its output stays where the norm subtracts the mean,
    and moves where it does not.
    """
    found: list[bool | None] = []
    changes = []
    for index in range(len(run.text)):
        stream, norms = _stream(run, index), list(_norms(run, index))
        if stream is None or not norms:
            found.append(None)
            continue
        with torch.no_grad():
            each = [_change(norm(stream), norm(stream + stream.std())) for norm in norms]
        changes += each
        found.append(any(change < tolerance(run) for change in each))
    measured: Measured = (
        {"largest_change": small(run, min(changes))}
        if any(found)
        else {"least_change": digits(min(changes), 2)}
        if changes
        else {}
    )
    return per_block(found, measured, absent="The blocks have no norms.")


def _change(before: torch.Tensor, after: torch.Tensor) -> float:
    return float((after.float() - before.float()).abs().max() / before.float().abs().max().clamp_min(1e-30))


def gain_norm(run: Run) -> Verdict:
    """Calls the norms with zero for their weight, without touching it: unit gain where the gain is one plus the
    weight, zero otherwise.
    """
    found: list[bool | None] = []
    sizes = []
    for index in range(len(run.text)):
        stream = _stream(run, index)
        norms = [norm for norm in _norms(run, index) if any(True for _ in norm.parameters())]
        if stream is None or not norms:
            found.append(None)
            continue
        each = [_at_zero_weight(norm, stream) for norm in norms]
        sizes += each
        found.append(all(abs(size - 1) < 0.01 for size in each))
    measured: Measured = (
        {"root_mean_square_at_zero_weight": digits(max(sizes), 3) if max(sizes) > 1e-6 else 0.0} if sizes else {}
    )
    return per_block(found, measured, absent="The blocks' norms have no weight.")


def _at_zero_weight(norm: torch.nn.Module, stream: torch.Tensor) -> float:
    """Root mean square of what a norm gives for zero weights, without its bias: one for a unit gain."""
    zeros = {name: torch.zeros_like(parameter) for name, parameter in norm.named_parameters()}
    with torch.no_grad():
        out = torch.func.functional_call(norm, zeros, (stream,)).float()
    return float(out.square().mean().sqrt())


QUIRKS = (
    Quirk(
        "layernorm",
        "LayerNorm",
        "text",
        layernorm,
        lambda m, b, n: (
            f"The norms of {some(b or [], n)} subtract the mean, so that a constant added to the stream is lost."
        ),
    ),
    Quirk(
        "gain-norm",
        "Norm gain is 1 + weight",
        "text",
        gain_norm,
        lambda m, b, n: f"The norms of {some(b or [], n)} multiply by 1 + weight: a weight of zero is a gain of one.",
    ),
)
