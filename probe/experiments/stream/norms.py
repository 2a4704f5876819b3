"""What kind of norms: whether they subtract a mean, and whether their gain is one plus the weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from ...instruments.listening import listening
from ...instruments.reweighted import called_with
from ...instruments.tap import removed
from ...measure.rounding import digits
from ...measure.run import Run
from ...wiring.nodes import NormNode
from ...wiring.nodes import every as every_node
from ..answers import per_block, small, tolerance
from ..base import Measured, Quirk, Verdict, some


@dataclass(frozen=True)
class Call:
    """A norm and what it was called with: the tensor it norms, and the rest."""

    norm: torch.nn.Module
    given: torch.Tensor
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def on(self, given: torch.Tensor) -> torch.Tensor:
        """What the norm gives for another tensor."""
        with torch.no_grad():
            out: torch.Tensor = self.norm(given, *self.args, **self.kwargs)
        return out

    def with_weights(self, weights: dict[str, torch.Tensor]) -> torch.Tensor:
        """What the norm gives with other weights, in float32."""
        with torch.no_grad():
            out: torch.Tensor = called_with(self.norm, weights, self.given, *self.args, **self.kwargs)
        return out.float()

    @cached_property
    def plain(self) -> torch.Tensor:
        """What the norm gave."""
        return self.on(self.given)

    @cached_property
    def weights(self) -> list[str]:
        """The parameters that its output follows, by name."""
        return [
            name
            for name, parameter in self.norm.named_parameters()
            if not torch.allclose(self.with_weights({name: parameter + 1}), self.plain.float())
        ]

    def at_zero_weight(self) -> float:
        """Root mean square of what the norm gives for zero weights, without its bias: one for a unit gain."""
        return _size(self.with_weights(self._zeros()))

    def at_weight_one(self) -> float:
        """The largest root mean square for zero weights but one, which is one: two for a gain of one more than that."""
        zeros = self._zeros()
        return max(_size(self.with_weights({**zeros, name: zeros[name] + 1})) for name in self.weights)

    def _zeros(self) -> dict[str, torch.Tensor]:
        return {name: torch.zeros_like(parameter) for name, parameter in self.norm.named_parameters()}


def _size(tensor: torch.Tensor) -> float:
    return float(tensor.square().mean().sqrt())


def stream_norms(run: Run, index: int) -> Iterator[str]:
    """The norms before and after a block's sublayers, and those of the stream itself, by path from the block."""
    anatomy = run.text.anatomy[index]
    for term in anatomy.terms:
        yield from (path for path in (term.pre_norm, term.post_norm) if path is not None)
    yield from (node.norm for node in every_node(anatomy.tree) if isinstance(node, NormNode))


@listening
@contextmanager
def calls(run: Run) -> Iterator[list[list[Call]]]:
    """How each block's norms are called on a short prompt."""
    found: list[list[Call]] = [[] for _ in run.text.envoys]
    with ExitStack() as stack:
        for index, envoy in enumerate(run.text.envoys):
            for path in dict.fromkeys(stream_norms(run, index)):
                hook = envoy._module.get_submodule(path).register_forward_pre_hook(
                    _keeping(found[index]), with_kwargs=True
                )
                stack.enter_context(removed(hook))
        yield found


def _keeping(store: list[Call]) -> Callable[..., None]:
    def keep(norm: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if args and isinstance(args[0], torch.Tensor) and all(call.norm is not norm for call in store):
            store.append(Call(norm, args[0].detach().clone(), args[1:], kwargs))

    return keep


def layernorm(run: Run) -> Verdict:
    """Adds one number to every element of what a norm takes: its output stays where the norm subtracts the mean,
    and moves where it does not.
    """
    found: list[bool | None] = []
    changes = []
    for block in calls(run):
        each = [_change(call.plain, call.on(call.given + call.given.std())) for call in block]
        changes += each
        found.append(any(change < tolerance(run) for change in each) if each else None)
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
    """Calls the norms with zero for their weight, and with one, without touching it: a gain of one and then of two
    where it is one plus the weight, of zero and then of one otherwise. A weight that a norm does not use is none.
    """
    found: list[bool | None] = []
    sizes: list[float] = []
    for block in calls(run):
        each = [(call.at_zero_weight(), call.at_weight_one()) for call in block if call.weights]
        sizes += [zero for zero, _ in each]
        found.append(all(abs(zero - 1) < 0.01 and abs(one - 2) < 0.02 for zero, one in each) if each else None)
    measured: Measured = (
        {"root_mean_square_at_zero_weight": digits(max(sizes), 3) if max(sizes) > 1e-6 else 0.0} if sizes else {}
    )
    return per_block(found, measured, absent="The blocks' norms have no weight.")


def weightless_norms(run: Run) -> Verdict:
    """Changes everything that a norm of a block could be trained by: an output that stays makes the answer yes."""
    found = [None if not block else not any(call.weights for call in block) for block in calls(run)]
    return per_block(found, absent="The blocks have no norms.")


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
        lambda m, b, n: (
            f"The norms before and after the sublayers of {some(b or [], n)} multiply by 1 + weight: a weight of zero "
            "is a gain of one."
        ),
    ),
    Quirk(
        "weightless-norms",
        "Norms without weights",
        "text",
        weightless_norms,
        lambda m, b, n: f"The norms of {some(b or [], n)} have no weight: they rescale the stream and nothing else.",
    ),
)
