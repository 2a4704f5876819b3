"""The order in which a forward passes the values of a host."""

from __future__ import annotations

from ..values.location import Location
from .declare import HostDraft, Values
from .find import place
from .sites import Recording


def in_order(recording: Recording, host: HostDraft) -> Values:
    """The host's values as the forward passes them; one that stands nowhere stays behind the one before it.

    A value whose place is passed several times counts from the last pass, as what it holds is complete only then.
    """
    order: dict[str, float] = {}
    before = -1.0
    for name, value in host.values.items():
        if value.at is not None:
            before = _passed(recording, host.path, value.at)
        order[name] = before
    return {name: host.values[name] for name in sorted(order, key=order.__getitem__)}


def _passed(recording: Recording, host: str, at: str) -> float:
    """When a location is passed for the last time; before everything else where the recording lacks it."""
    module, steps = place(host, at)
    found = Location.parse(at)
    side, index = ("inputs", (0, 0)) if found.side == "input" else (found.side, found.index)
    sites = [site for site in recording.below(module) if (site.module, site.steps, site.side) == (module, steps, side)]
    same = [site for site in sites if site.index == index] or sites
    return max((again.order for site in same for again in recording.passes(site)), default=-1.0)
