"""Two functions on the same arguments: what each gives, and what each leaves in its arguments."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from probe.derive.kernels import stand_in
from probe.experiments.recurrence_code import choice, chosen
from probe.measure.rounding import digits, one_digit
from probe.schema.kernels import Comparison, Difference

Function = Callable[..., Any]
During = Literal["prompt", "step"]

RETURNED = ("output", "state")
"""What a mixer's functions return, by place."""


@dataclass
class Worst:
    """The largest difference and the largest number of one tensor so far, both in its own units."""

    apart: float = 0.0
    largest: float = 0.0


@dataclass
class Beside:
    """A function of transformers, watched: each call runs its PyTorch code, and the other function on copies.

    Attributes:
        other: the package's function; None where it cannot run.
        reason: why it cannot, a clause.
        during: which forward runs now.
    """

    function: Function
    other: Function | None
    reason: str | None = None
    during: During = "prompt"
    calls: dict[During, int] = field(default_factory=dict)
    worst: dict[During, dict[str, Worst]] = field(default_factory=dict)
    dtypes: dict[During, str] = field(default_factory=dict)
    failed: dict[During, str] = field(default_factory=dict)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Calls of the function are compared meanwhile; each returns what the PyTorch code gives."""
        plain = choice(self.function)["torch_function"].cell_contents
        taken = {*inspect.signature(plain).parameters}
        taken |= {*inspect.signature(self.other).parameters} if self.other else set()

        def both(*args: Any, **kwargs: Any) -> Any:
            return self._call(plain, args, kwargs)

        with chosen(self.function, implementation=both, applicable_params=tuple(taken), is_new_implementation=True):
            yield

    def _call(self, plain: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        names = [*inspect.signature(plain).parameters]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        copied_args, copied = [_copy(value) for value in args], {name: _copy(value) for name, value in kwargs.items()}
        before = {name: value.clone() for name, value in given.items() if isinstance(value, torch.Tensor)}
        result = plain(*args, **_known(plain, kwargs))
        self.calls[self.during] = self.calls.get(self.during, 0) + 1
        if result is None:
            self.failed[self.during] = "transformers has no PyTorch code that gives a result there"
        elif self.other is not None and self.during not in self.failed:
            try:
                found = self.other(*copied_args, **_known(self.other, copied))
                theirs = {**dict(zip(names, copied_args, strict=False)), **copied}
                changed = [n for n, old in before.items() if not old.equal(given[n]) or not old.equal(theirs[n])]
                pairs = [*_returned(result, found), *((name, given[name], theirs[name]) for name in changed)]
                self._keep(pairs)
            except Exception as error:
                self.failed[self.during] = f"the call stopped with an error ({_words(error)})"
        return result

    def _keep(self, pairs: list[tuple[str, Any, Any]]) -> None:
        for name, ours, theirs in pairs:
            if not isinstance(theirs, torch.Tensor) or theirs.shape != ours.shape:
                raise ValueError(f"{name} has another shape")
            apart = float((ours.double() - theirs.double()).abs().max())
            if not math.isfinite(apart):
                raise ValueError(f"{name} has numbers that are not finite")
            worst = self.worst.setdefault(self.during, {}).setdefault(name, Worst())
            worst.apart = max(worst.apart, apart)
            worst.largest = max(worst.largest, float(ours.double().abs().max()))
            self.dtypes.setdefault(self.during, str(ours.dtype).removeprefix("torch."))

    def found(self) -> list[Comparison]:
        """What the calls came to, by what called the function; one entry with a reason where nothing did."""
        held = stand_in(self.function)
        assert held is not None
        names = {"function": self.function.__name__, "package": held.package, "stand_in": held.function}
        if not self.calls:
            reason = "in eval mode neither a prompt nor a step with a cache calls the PyTorch function"
            return [Comparison(**names, during=None, calls=0, reason=reason)]
        return [self._comparison(names, during) for during in self.calls]

    def _comparison(self, names: dict[str, str], during: During) -> Comparison:
        reason = self.reason if self.other is None else self.failed.get(during)
        if reason is not None:
            return Comparison(**names, during=during, calls=0, reason=reason)
        differences = [
            Difference(of=name, apart=one_digit(worst.apart, up=True), largest=digits(worst.largest, 2))
            for name, worst in self.worst[during].items()
        ]
        return Comparison(
            **names, during=during, calls=self.calls[during], dtype=self.dtypes[during], differences=differences
        )


def _known(function: Function, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments that a function names, as transformers chooses them."""
    taken = inspect.signature(function).parameters
    return {name: value for name, value in kwargs.items() if name in taken}


def _copy(value: Any) -> Any:
    """A tensor with the same strides on a storage of its own, since kernels look at strides; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    storage = value.untyped_storage().clone()
    return torch.empty(0, dtype=value.dtype, device=value.device).set_(
        storage, value.storage_offset(), value.size(), value.stride()
    )


def _returned(ours: Any, theirs: Any) -> list[tuple[str, Any, Any]]:
    """What both return, as (name, ours, theirs)."""
    mine = ours if isinstance(ours, tuple) else (ours,)
    other = theirs if isinstance(theirs, tuple) else (theirs,)
    if len(mine) != len(other):
        raise ValueError(f"it returns {len(other)} results in place of {len(mine)}")
    return [(name, a, b) for name, a, b in zip(RETURNED, mine, other, strict=False) if isinstance(a, torch.Tensor)]


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".replace("\n", " ").strip(": ")[:200]
