"""Declaring a mixer's values: at the site that holds one, as one that is only read, or as one that stands nowhere."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ..values.layouts import LAYOUTS
from ..values.value import Refusal
from .declare import Declared, HostDraft
from .find import find, location
from .kernels import Call
from .mixer_words import WORDS
from .sites import Recording, Site


def put(
    recording: Recording,
    host: HostDraft,
    name: str,
    layout: str,
    tensor: torch.Tensor,
    sites: Iterable[Site],
    note: str = "",
    until: float = float("inf"),
) -> bool:
    """Declare a value at the site that holds it: a module's before an operation's, a call's before an assignment's.

    Args:
        tensor: in the axes of the layout.
        until: the last order at which the value still has an effect.
    """

    def prefer(site: Site) -> float:
        named = 2e9 if not site.steps else (1e9 if site.called is not None and site.order < until else 0)
        return named + (site.order if site.order < until else -site.order)

    found = find(recording, sites, tensor, layout, prefer=prefer)
    if found is not None:
        host.values[name] = Declared(layout, found.at(host.path), WORDS[name] + note, found.held)
    return found is not None


def refuse(host: HostDraft, name: str, layout: str, reason: str) -> None:
    host.values[name] = Declared(layout, None, WORDS[name], reason=reason)


def observe(
    host: HostDraft, name: str, layout: str, site: Site, note: str = "", axes: str | None = None, **options: object
) -> None:
    """Declare a value that is only read; ``options`` are those of an observed value."""
    usual = {"chunk": None, "runs": 1, "last": True}
    given = tuple((key, value) for key, value in options.items() if value != usual[key])
    host.values[name] = Declared(layout, location(site, host.path), WORDS[name] + note, axes, given, observed=True)


def each_head(host: HostDraft, name: str, layout: str, site: Site, call: Call) -> None:
    """Declare a value that a place holds for one head at a time, ``[batch, …, seq]``."""
    batch, seq, *rest = LAYOUTS[layout].dims
    note = f"; read-only, since its place is passed once for each of {call.runs} heads"
    observe(host, name, layout, site, note, " ".join([batch, *rest, seq]), chunk=None, runs=call.runs)


def only_in_pytorch(call: Call, name: str) -> str | None:
    """What a load is refused with that runs another package's code in the place of the function that a value is read
    inside; None where nothing may run in its place.
    """
    if call.stand_in is None:
        return None
    package, function = call.stand_in.package, call.stand_in.function
    return Refusal(
        f"{name} needs the PyTorch code of {call.name}: where transformers can import {package} it runs that package's "
        f"{function} instead, inside which no named place holds it, so load where {package} is not installed.",
        code=call.name,
    )


def called(call: Call) -> str:
    """Which code ran a function, for a description."""
    how = "as a fused kernel" if call.fused else "as plain PyTorch"
    return f"; {call.name} ran, {how}, on all tokens at once"
