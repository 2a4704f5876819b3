"""A mixer's short convolution over the tokens: what it takes and gives, before a recurrence or alone."""

from __future__ import annotations

from typing import NamedTuple

import torch

from .declare import HostDraft
from .kernels import convolutions
from .modules import entering
from .placing import called, put
from .sites import Recording, Site


class Convolved(NamedTuple):
    """Input and output of a convolution, ``[batch, channels, seq]``, and where the input is."""

    given: torch.Tensor
    taken: torch.Tensor
    site: Site


def describe(model: torch.nn.Module, recording: Recording, host: HostDraft, seq: int) -> Convolved | None:
    """Declare what the convolution takes and gives, where the mixer has one: a function's call, or a module."""
    found, ends, note = _convolved(model, recording, host, seq)
    if found is None:
        return None
    put(recording, host, "conv_input", "Channels", found.given.transpose(1, 2), [found.site], note)
    after = [site for site in recording.below(host.path) if site.order > found.site.order]
    for sites in (ends, after):
        if put(recording, host, "conv_output", "Channels", found.taken.transpose(1, 2), sites, note):
            break
    return found


def _convolved(
    model: torch.nn.Module, recording: Recording, host: HostDraft, seq: int
) -> tuple[Convolved | None, list[Site], str]:
    """The convolution, the sites of its own output, and what code ran."""
    calls = [call for call in convolutions(model, recording, host.path) if call.runs == 1]
    if len(calls) == 1:
        given, taken = calls[0].arguments["hidden_states"][0], calls[0].results[0][0]
        whole = given.tensor.shape[-1] == taken.tensor.shape[-1] == seq
        return (Convolved(given.tensor, taken.tensor, given) if whole else None), [taken], called(calls[0])
    events = [event for event in recording.inside(host.path) if event.name == "conv1d"]
    if calls or len(events) != 1 or not isinstance(model.get_submodule(events[0].inside[-1]), torch.nn.Conv1d):
        return None, [], ""
    site = entering(recording, events[0].inside[-1])
    if site is None or site.tensor.shape[-1] != seq:
        return None, [], ""
    return Convolved(site.tensor, events[0].output[..., :seq], site), [], ""


def alone(recording: Recording, host: HostDraft, found: Convolved) -> torch.Tensor:
    """Declare the two factors of what a convolution without a recurrence takes.

    Returns:
        ``[batch, seq, channels]``, what it gives.
    """
    before = [
        site
        for site in recording.below(host.path)
        if site.side == "output" and site.order < found.site.order and site.tensor.shape == found.given.shape
    ]
    pairs = ((one, other) for at, one in enumerate(before) for other in before[at + 1 :])
    for gate, x in pairs:
        if torch.equal(gate.tensor * x.tensor, found.given):
            put(recording, host, "mixer_input_gate", "Channels", gate.tensor.transpose(1, 2), [gate])
            put(recording, host, "mixer_x", "Channels", x.tensor.transpose(1, 2), [x])
            break
    return found.taken.transpose(1, 2)
