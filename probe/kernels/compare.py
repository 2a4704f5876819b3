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
from probe.experiments.recurrence.recurrence_code import choice, chosen
from probe.measure.rounding import digits, one_digit
from probe.schema.kernels import Comparison, Difference, Ran

Function = Callable[..., Any]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
During = Literal["prompt", "step"]

RETURNED = ("output", "state")
"""What a mixer's functions return, by place."""

PITCH = 8
"""Kernels that read several numbers at once want strides that are multiples of it; a twin's sizes may be too small."""


@dataclass
class Worst:
    """The largest difference and the largest number of one tensor so far, both in its own units."""

    apart: float = 0.0
    largest: float = 0.0


@dataclass
class Theirs:
    """A function of the package, and what its calls came to, by the forward that made them.

    Attributes:
        function: None where it cannot run.
        reason: why it cannot, a clause.
        ran: what executes its kernels.
        launches: how many kernels have run so far, where that can be told: a call that runs none is no comparison.
        stopped: why no further call was made, a clause.
        padded: the forwards whose calls were refused for their tensors' strides, and were made with others.
    """

    function: Function | None
    reason: str | None = None
    ran: Ran | None = None
    launches: Callable[[], int] | None = None
    calls: dict[During, int] = field(default_factory=dict)
    worst: dict[During, dict[str, Worst]] = field(default_factory=dict)
    dtypes: dict[During, str] = field(default_factory=dict)
    stopped: dict[During, str] = field(default_factory=dict)
    padded: set[During] = field(default_factory=set)

    def why_not(self, during: During) -> str | None:
        """Why nothing was compared; None where something was."""
        return self.reason if self.function is None else self.stopped.get(during)

    def compare(self, during: During, call: Call, given: Arguments, padded: Arguments) -> bool:
        """Calls the function on arguments of its own, unless a call stopped before; whether all went well.

        Args:
            padded: the same in padded rows, for a function that says that it refuses the strides of ``given``.
        """
        if self.function is None or during in self.stopped:
            return False
        try:
            try:
                found = self._run(self.function, given)
            except Exception as error:
                if "stride" not in str(error):
                    raise
                found = self._run(self.function, given := padded)
                self.padded.add(during)
            args, kwargs = given
            self._keep(during, [*_returned(call.result, found), *call.changed({**call.named(args), **kwargs})])
        except Exception as error:
            self.stopped[during] = f"the call stopped with an error ({words(error)})"
            return False
        self.calls[during] = self.calls.get(during, 0) + 1
        return True

    def _run(self, function: Function, given: Arguments) -> Any:
        before = self.launches() if self.launches else None
        args, kwargs = given
        found = function(*args, **_known(function, kwargs))
        if self.launches and self.launches() == before:
            raise ValueError("it ran no kernel")
        return found

    def _keep(self, during: During, pairs: list[tuple[str, Any, Any]]) -> None:
        for name, ours, theirs in pairs:
            if not isinstance(theirs, torch.Tensor) or theirs.shape != ours.shape:
                raise ValueError(f"{name} has another shape")
            apart = float((ours.double() - theirs.double()).abs().max())
            if not math.isfinite(apart):
                raise ValueError(f"{name} has numbers that are not finite")
            worst = self.worst.setdefault(during, {}).setdefault(name, Worst())
            worst.apart = max(worst.apart, apart)
            worst.largest = max(worst.largest, float(ours.double().abs().max()))
            self.dtypes.setdefault(during, str(ours.dtype).removeprefix("torch."))

    def told(self, during: During) -> dict[str, Any]:
        """Keys of a comparison: how many calls there were, and how far apart their numbers were."""
        differences = [
            Difference(of=name, apart=one_digit(worst.apart, up=True), largest=digits(worst.largest, 2))
            for name, worst in self.worst[during].items()
        ]
        told = {"calls": self.calls[during], "dtype": self.dtypes[during], "differences": differences}
        return {**told, "ran": self.ran, "padded": during in self.padded}


@dataclass
class Call:
    """One call of the PyTorch code.

    Attributes:
        names: of its parameters.
        given: its arguments by name, as it left them.
        before: those of them that are tensors, as they were.
        result: what it gave.
    """

    names: list[str]
    given: dict[str, Any]
    before: dict[str, torch.Tensor]
    result: Any = None

    def named(self, args: tuple[Any, ...]) -> dict[str, Any]:
        """Arguments that are given by place, by name."""
        return dict(zip(self.names, args, strict=False))

    def changed(self, theirs: dict[str, Any]) -> list[tuple[str, Any, Any]]:
        """The arguments that either function changed in place, as (name, ours, theirs)."""
        names = [n for n, old in self.before.items() if not old.equal(self.given[n]) or not old.equal(theirs[n])]
        return [(name, self.given[name], theirs[name]) for name in names]


@dataclass
class Beside:
    """A function of transformers, watched: each call runs its PyTorch code, and the package's function on copies.

    Attributes:
        kernel: the function that transformers runs in its place where it can.
        reference: the package's own PyTorch version of it, called where the kernel does not run.
        during: which forward runs now.
    """

    function: Function
    kernel: Theirs
    reference: Theirs = field(default_factory=lambda: Theirs(None))
    during: During = "prompt"
    called: list[During] = field(default_factory=list)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Calls of the function are compared meanwhile; each returns what the PyTorch code gives."""
        plain = choice(self.function)["torch_function"].cell_contents
        functions = [plain, *(each.function for each in (self.kernel, self.reference) if each.function)]
        taken = {name for function in functions for name in inspect.signature(function).parameters}

        def both(*args: Any, **kwargs: Any) -> Any:
            return self._call(plain, args, kwargs)

        with chosen(self.function, implementation=both, applicable_params=tuple(taken), is_new_implementation=True):
            yield

    def _call(self, plain: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = Call([*inspect.signature(plain).parameters], {}, {})
        call.given = {**call.named(args), **kwargs}
        call.before = {name: value.clone() for name, value in call.given.items() if isinstance(value, torch.Tensor)}
        copies = [[_copies(args, kwargs, copy) for copy in (_copy, _padded)] for _ in range(2)]
        call.result = plain(*args, **_known(plain, kwargs))
        if self.during not in self.called:
            self.called.append(self.during)
        for theirs, (copied, padded) in zip((self.kernel, self.reference), copies, strict=True):
            if call.result is None:
                theirs.stopped[self.during] = "transformers has no PyTorch code that gives a result there"
            elif theirs.compare(self.during, call, copied, padded):
                break
        return call.result

    def found(self, stopped: str | None = None) -> list[Comparison]:
        """What the calls came to, by what called the function; one entry with a reason where nothing did.

        Args:
            stopped: why the forwards did not end, a clause; None where they did.
        """
        held = stand_in(self.function)
        assert held is not None
        names = {"function": self.function.__name__, "package": held.package, "stand_in": held.function}
        if not self.called:
            reason = stopped or "in eval mode neither a prompt nor a step with a cache calls the PyTorch function"
            return [Comparison(**names, during=None, calls=0, reason=reason)]
        return [Comparison(**names, during=during, **self._told(during)) for during in self.called]

    def _told(self, during: During) -> dict[str, Any]:
        reason = self.kernel.why_not(during)
        if reason is None:
            return self.kernel.told(during)
        ran = self.kernel.ran if self.kernel.function else None
        if self.reference.function is None:
            return {"calls": 0, "reason": reason, "ran": ran}
        name = self.reference.function.__name__
        if failed := self.reference.why_not(during):
            also = "" if failed == reason else f"; of `{name}`, the package's own PyTorch version, {failed}"
            return {"calls": 0, "reason": reason + also, "ran": ran}
        return {**self.reference.told(during), "reference": name, "reason": reason, "ran": ran}


def _known(function: Function, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments that a function names, as transformers chooses them."""
    taken = inspect.signature(function).parameters
    return {name: value for name, value in kwargs.items() if name in taken}


def _copies(args: tuple[Any, ...], kwargs: dict[str, Any], copy: Callable[[Any], Any]) -> Arguments:
    return tuple(copy(value) for value in args), {name: copy(value) for name, value in kwargs.items()}


def _copy(value: Any) -> Any:
    """A tensor with the same strides on a storage of its own, since kernels look at strides; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    storage = value.untyped_storage().clone()
    return torch.empty(0, dtype=value.dtype, device=value.device).set_(
        storage, value.storage_offset(), value.size(), value.stride()
    )


def _padded(value: Any) -> Any:
    """A tensor with its dimensions in the same order in memory, and each stride but 1 a multiple of :data:`PITCH`."""
    if not isinstance(value, torch.Tensor):
        return value
    strides, reach = [0] * value.dim(), 1
    for dim in sorted(range(value.dim()), key=lambda dim: (value.stride(dim), value.size(dim))):
        strides[dim] = reach
        reach = math.ceil(reach * value.size(dim) / PITCH) * PITCH
    return torch.empty_strided(value.size(), strides, dtype=value.dtype, device=value.device).copy_(value)


def _returned(ours: Any, theirs: Any) -> list[tuple[str, Any, Any]]:
    """What both return, as (name, ours, theirs)."""
    mine = ours if isinstance(ours, tuple) else (ours,)
    other = theirs if isinstance(theirs, tuple) else (theirs,)
    if len(mine) != len(other):
        raise ValueError(f"it returns {len(other)} results in place of {len(mine)}")
    return [(name, a, b) for name, a, b in zip(RETURNED, mine, other, strict=False) if isinstance(a, torch.Tensor)]


def words(error: Exception) -> str:
    """An error's class and message on one line, at most 200 characters."""
    return f"{type(error).__name__}: {error}".replace("\n", " ").strip(": ")[:200]
