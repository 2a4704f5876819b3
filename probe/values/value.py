"""A standard value: a named place in the forward pass that a trace can read and write under every family's name.

:class:`StandardValue` is nnsight's ``eproperty`` over a :class:`~probe.values.location.Location`: reading parks the
trace until the model arrives there, and writing replaces what the model goes on with. A value the load cannot give
raises :class:`UnavailableValue` at that line, with the sentence ``support()`` gives.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from nnsight.intervention.eproperty import WriteBack, eproperty
from nnsight.intervention.interleaver import Mediator

from ..schema import Lack, Pass
from .axes import Axes
from .layouts import LAYOUTS, Layout, fit
from .location import Location, Missing, NotFormed

if TYPE_CHECKING:
    from .hosts import Host


class UnavailableValue(LookupError):
    """This load cannot give the value; the message is the reason."""


class Refusal(str):
    """The sentence with which a load refuses a value.

    Attributes:
        lack: what stands against it under another attention than eager; None where that is no matter of attention.
        code: the function whose PyTorch code has to run; None where no other code may run in its place.
    """

    lack: Lack | None
    code: str | None

    def __new__(cls, sentence: str, *, lack: Lack | None = None, code: str | None = None) -> Refusal:
        made = super().__new__(cls, sentence)
        made.lack, made.code = lack, code
        return made


class StandardValue(eproperty):
    """One standard value of a host.

    Args:
        layout: name of its layout in :data:`~probe.values.layouts.LAYOUTS`.
        at: its location, as a path from the host.
        description: one phrase for the printout and the page.
        copy: serve a private copy, so that an edit reaches this host and nothing that shares the tensor.
        live: an assignment writes into the tensor that is there, so that it reaches everything that shares it.
        derive: computes the value from what the location holds; such a value is read-only.
        formula: what ``derive`` computes, as an expression on ``tensor``, for someone with a hook in hand.
        absent: what to say where the location's module or operation does not exist.
        requires: path of a module without which the block does not have the value, even where the location exists.
        eager: only eager attention runs the operation, though the forward that has it runs under others too.
        axes: how the tensor at the location holds the layout's axes, where they are swapped, or folded other than
            :func:`~probe.values.layouts.fit` tells by itself; see :class:`~probe.values.axes.Axes`.
    """

    def __init__(
        self,
        layout: str,
        at: str,
        description: str,
        *,
        copy: bool = False,
        live: bool = False,
        derive: Callable[[Host, Any], Any] | None = None,
        formula: str | None = None,
        absent: str | None = None,
        requires: str | None = None,
        axes: str | None = None,
        eager: bool = False,
    ) -> None:
        super().__init__(key=at, description=description)
        self.layout: Layout = LAYOUTS[layout]
        self.location = Location.parse(at)
        self.copy = copy
        self.live = live
        self.derive = derive
        self.formula = formula
        self.absent = absent
        self.requires = requires
        self.eager = eager
        self.condition: str | None = None
        """What a load is refused with that runs other code than this one; None where none can."""
        self.axes = Axes.parse(axes, self.layout.dims) if axes else None

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        arrow = "" if self.layout.name == "scalar" else f" -> {self.layout}"
        return f"({self.name}){arrow}: {self.description}"

    def __call__(self, preprocess: Callable[..., Any]) -> eproperty:
        raise TypeError("a standard value is declared, not decorated")

    @property
    def writable(self) -> bool:
        return self.derive is None

    @property
    def passes(self) -> list[Pass]:
        """Which times that its place is passed in a forward it is of, where that is passed several times."""
        return []

    def refusal(self, host: Host) -> str | None:
        """Why this host cannot give the value, or None. Nothing is run."""
        attn = host._attn_implementation
        if self.eager and attn != "eager":
            return Refusal(
                f"{self.name} needs attn_implementation='eager': under {attn!r} the forward of "
                f"{type(host._module).__name__} goes another way, on which it is not formed.",
                lack="another way",
            )
        try:
            if self.requires is not None:
                Location.parse(f"{self.requires}.output").check(host)
            self.location.check(host)
        except Missing as missing:
            return self._because(host, missing)
        return None

    def _because(self, host: Host, lack: Missing) -> str:
        missing, native = str(lack), type(host._module).__name__
        if "attention_interface" in missing or any(
            step.startswith("attention_interface") for step in self.location.steps[:-1]
        ):
            attn = host._module.config._attn_implementation
            if attn != "eager" and missing != self.location.steps[1]:
                return Refusal(
                    f"{self.name} needs attn_implementation='eager': under {attn!r} the attention is one fused kernel "
                    "that never forms it.",
                    lack="fused kernel",
                )
        if isinstance(lack, NotFormed):
            return f"{self.absent}." if self.absent else f"{self.name} is not formed by the forward of {native} here."
        where = f"{native} has no {missing}"
        return f"{self.absent}: {where}." if self.absent else f"{self.name} is not available here: {where}."

    def __get__(self, obj: Host | None, owner: Any = None) -> Any:
        if obj is None:
            return self
        reason = obj.refusal(self)
        if reason is not None:
            raise UnavailableValue(reason)
        try:
            return self._read(obj)
        except AttributeError as error:  # a property that raises it would be taken for a missing attribute
            raise RuntimeError(f"reading {self.name} at {self.location} failed: {error}") from error

    def _read(self, host: Host) -> Any:
        at = self.location.served_at(host)
        mediator = Mediator.current(at)
        occurrence = mediator.wanted(at)
        waiting = mediator.transform
        if waiting is not None and waiting.key == (self, at, occurrence):
            return waiting.view
        raw = Mediator.value(at)
        held = self.location.extract(raw)
        host.note_held(self, held)
        if self.derive is not None:
            return self.derive(host, held)
        view = self._rows(mediator, host, held)
        if self.copy:
            view = view.clone()
        if not _shares(view, held):
            mediator.transform = WriteBack(partial(self._rebuild, host, raw, view), view, self, at, occurrence)
        return view

    def _rows(self, mediator: Mediator, host: Host, held: torch.Tensor) -> torch.Tensor:
        """The value in its layout's axes, narrowed to the rows of the invoke that reads."""
        view = self._fitted(host, held)
        batcher, group = mediator.interleaver.batcher, mediator.batch_group
        moved = self.axes is not None or view.ndim != held.ndim  # the rows may stand on another axis than the first
        folded = moved and batcher is not None and batcher.batching and group is not None
        if folded and view.shape[0] == batcher.total and held.shape[0] != batcher.total:
            view = view.narrow(0, *group)
        return view

    def _rebuild(self, host: Host, raw: Any, value: torch.Tensor) -> Any:
        """What the model goes on with when the value is ``value``."""
        held = self.location.extract(raw)
        if self.copy:
            value = value.clone()  # what was handed out stays the reader's; the model may write into what it gets
        if value.numel() == held.numel():
            return self.location.replace(raw, self._held_as(value, held))
        mediator = Mediator.current(str(self.location))
        whole = self._fitted(host, held).clone()
        whole.narrow(0, *mediator.batch_group).copy_(value)
        return self.location.replace(raw, self._held_as(whole, held))

    def _fitted(self, host: Host, held: torch.Tensor) -> torch.Tensor:
        """What the model holds, in the layout's axes."""
        if self.axes is None:
            return fit(held, self.layout, size=host.call_size, heads=host.layout_heads)
        return self.axes.view(held, host.axis_sizes)

    def _held_as(self, value: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
        """A value in the layout's axes, as the model holds it."""
        return value.reshape(held.shape) if self.axes is None else self.axes.fold(value, held.shape)

    def __set__(self, obj: Host, value: Any) -> None:
        reason = obj.refusal(self)
        if reason is not None:
            raise UnavailableValue(reason)
        if not self.writable:
            raise UnavailableValue(f"{self.name} is derived from the run and read-only.")
        at = self.location.served_at(obj)
        mediator = Mediator.current(at)
        waiting = mediator.transform
        if waiting is not None and waiting.key == (self, at, mediator.wanted(at)):
            mediator.transform = None
            raw = waiting.fn.args[1]
        else:
            raw = Mediator.value(at)
        if self.live:
            self._rows(mediator, obj, self.location.extract(raw)).copy_(value)
        else:
            Mediator.swap(at, self._rebuild(obj, raw, value))

    @cached_property
    def words(self) -> str:
        """Where the value is read, in words."""
        return self.location.words()


class Unserved(StandardValue):
    """A value the family's implementation does not hold anywhere; reading it gives the reason."""

    def __init__(self, reason: str, description: str) -> None:
        super().__init__("scalar", "output", description)
        self.reason = reason

    def refusal(self, host: Host) -> str | None:
        return self.reason

    @cached_property
    def words(self) -> str:
        return "nowhere: the family does not serve it"


def _shares(view: torch.Tensor, held: torch.Tensor) -> bool:
    return view.untyped_storage().data_ptr() == held.untyped_storage().data_ptr()
