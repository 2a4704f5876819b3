"""Norms with a gate: a gain that moves with the token, and a mixer's norm that stands behind its gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ...instruments.extra import SCALE, moved
from ...instruments.listening import listening
from ...instruments.rows import removed
from ...measure.listing import listed
from ...measure.rounding import digits
from ...measure.run import Run
from ..answers import per_block, phrase, tolerance
from ..base import Measured, Quirk, Verdict, some
from .norms import Call, calls

LARGE = 64.0
"""What a norm's input is multiplied by, so that the number that keeps it from dividing by zero has no say."""

FEWEST = 4
"""Tokens that a fit of a gain and a bias needs at least, to leave something where there is a gate."""

OPEN = 8.0
"""What is added to a channel of a gate."""

MOVES = 0.01
"""Relative change below which a module forgets the scale of its input, as a norm does."""


def gated_norms(run: Run) -> Verdict:
    """Compares the gains of neighbouring channels of each norm over the tokens of a prompt, and fits a gain and a bias
    for each channel of the input without its mean: where both leave something, a gate moves the gain with the token.
    """
    found: list[bool | None] = []
    names: set[str] = set()
    left: list[float] = []
    every = iter(_left([call for block in calls(run) for call in block]))
    for envoy, block in zip(run.text.envoys, calls(run), strict=True):
        paths = {module: path for path, module in envoy._module.named_modules()}
        each = {paths[call.norm]: next(every) for call in block}
        gated = {name for name, error in each.items() if error > tolerance(run)}
        names |= gated
        left += each.values()
        found.append(bool(gated) if each else None)
    measured: Measured = {"norms": sorted(names), "gain_moves": digits(max(left), 2)} if names else {}
    return per_block(found, measured, absent="The blocks have no norms.")


def _left(every: Sequence[Call]) -> list[float]:
    """How far each norm's gain moves with the token, whether it takes the mean off or not; nothing for fewer tokens
    than a fit needs. Norms of as many tokens and channels are looked at together.
    """
    left = [0.0] * len(every)
    alike: dict[torch.Size, dict[int, tuple[torch.Tensor, torch.Tensor]]] = {}
    for index, call in enumerate(every):
        given = call.given * LARGE
        out = call.on(given)
        if given.shape == out.shape and given[..., 0].numel() >= FEWEST:
            pair = given.float().flatten(0, -2), out.float().flatten(0, -2)
            alike.setdefault(pair[0].shape, {})[index] = pair
    for pairs in alike.values():
        x, y = (torch.stack(side).double() for side in zip(*pairs.values(), strict=True))
        gated = torch.minimum(_between_neighbours(x, y), _of_centred(x - x.mean(-1, keepdim=True), y))
        for index, number in zip(pairs, gated.tolist(), strict=True):
            left[index] = number
    return left


def _between_neighbours(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """For norms ``[norms, tokens, channels]`` the spread over the tokens of the ratio between the gains of two
    neighbouring channels, for most of them: the size that a token's channels are divided by is in both, also where each
    group of channels has one of its own.
    """
    gains = y / x
    ratios = gains[..., 1:] / gains[..., :-1]
    return (ratios.std(1) / ratios.mean(1).abs()).nanmedian(-1).values


def _of_centred(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The largest error of the better gain and bias for each channel of each norm, by least squares over the tokens."""
    x = x / x.square().mean(-1, keepdim=True).sqrt()
    around, middle = x - x.mean(1, keepdim=True), y.mean(1, keepdim=True)
    gain = (around * (y - middle)).sum(1, keepdim=True) / around.square().sum(1, keepdim=True).clamp_min(1e-30)
    return (middle + gain * around - y).abs().amax((1, 2)) / y.abs().amax((1, 2)).clamp_min(1e-30)


@dataclass(frozen=True)
class Gated:
    """A module with a vector of weights that was called with a tensor and a gate for each number of it."""

    module: torch.nn.Module
    given: torch.Tensor
    gate: torch.Tensor
    call: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

    def moving(self, close: float) -> int | None:
        """How many channels of what it gives move with one channel of the gate; None for a module that is no norm."""
        with torch.no_grad():
            plain, larger = (self.call(self.given * scale, self.gate).float() for scale in (LARGE, SCALE * LARGE))
            opened = self.gate.clone()
            opened[..., 0] += OPEN
            other = self.call(self.given * LARGE, opened).float()
        if plain.shape != self.given.shape or moved(torch.stack([plain, larger]), 1) > MOVES:
            return None
        change = (other - plain).abs().flatten(0, -2).amax(0)
        return int((change > close * plain.abs().flatten(0, -2).amax(0)).sum())


def norm_behind_gate(run: Run) -> Verdict:
    """Opens one channel of the gate that a mixer's norm is called with: where other channels move too, the norm stands
    behind the gate, and where that channel alone moves, the gate stands behind the norm.
    """
    found: list[bool | None] = []
    wide: set[int] = set()
    for block in _gated(run):
        moving = [count for gated in block if (count := gated.moving(tolerance(run))) is not None]
        wide |= {count for count in moving if count > 1}
        found.append(any(count > 1 for count in moving) if moving else None)
    return per_block(found, {"channels_moved": max(wide)} if wide else {}, absent="No norm is called with a gate.")


@listening
@contextmanager
def _gated(run: Run) -> Iterator[list[list[Gated]]]:
    """Calls of modules without children, with two tensors of one shape, on each block whose mixer is no attention."""
    found: list[list[Gated]] = [[] for _ in run.text.envoys]
    with ExitStack() as stack:
        for index, (envoy, anatomy) in enumerate(zip(run.text.envoys, run.text.anatomy, strict=True)):
            for path in {host for term in anatomy.terms if term.kind == "mixer" for host in term.hosts}:
                for module in envoy._module.get_submodule(path).modules():
                    own = [parameter.ndim for parameter in module.parameters()]
                    if own == [1] and not [*module.children()]:
                        hook = module.register_forward_pre_hook(_keeping(found[index]), with_kwargs=True)
                        stack.enter_context(removed(hook))
        yield found


def _keeping(store: list[Gated]) -> Callable[..., None]:
    def keep(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = [*args, *kwargs.values()]
        tensors = [item for item in given if isinstance(item, torch.Tensor)]
        if len(tensors) != 2 or tensors[0].shape != tensors[1].shape or any(g.module is module for g in store):
            return
        one, two = tensors

        def call(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
            now = [first if item is one else second if item is two else item for item in given]
            out: torch.Tensor = module(*now[: len(args)], **dict(zip(kwargs, now[len(args) :], strict=True)))
            return out

        store.append(Gated(module, one.detach().clone(), two.detach().clone(), call))

    return keep


QUIRKS = (
    Quirk(
        "gated-norms",
        "Gated norms",
        "text",
        gated_norms,
        lambda m, b, n: (
            f"On {some(b or [], n)} the gain of {_listed(m)} moves with the token: a gate made from the normed stream "
            "multiplies it."
        ),
    ),
    Quirk(
        "norm-behind-gate",
        "Norm behind a gate",
        "text",
        norm_behind_gate,
        lambda m, b, n: (
            f"On {some(b or [], n)} the mixer's norm stands behind its gate: one channel of the gate moves "
            f"{phrase(m, 'channels_moved', '{} channels of') or 'many channels of'} what the norm gives."
        ),
    ),
)


def _listed(measured: Measured) -> str:
    names = [f"`{name}`" for name in measured.get("norms") or []] or ["a norm"]
    return listed(names)
