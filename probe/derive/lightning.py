"""Lightning attention: a linear attention with a fixed decay a head, written out in the module's own forward."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import torch

from .declare import Declared, HostDraft
from .find import find, location
from .mixer_words import WORDS
from .modules import close, leaving
from .sites import Recording, Site


def describe(model: torch.nn.Module, recording: Recording, host: HostDraft) -> torch.Tensor | None:
    """Fill in the values of a mixer that gives its state beside its result.

    Returns:
        ``[batch, seq, heads, head_dim]``: what the recurrence gives; None where the module is no such mixer.
    """
    sites = recording.below(host.path)
    first = leaving(recording, host.path)
    state = next((s for s in sites if first is not None and s.place == first.place and s.index == (1,)), None)
    if state is None or state.tensor.ndim != 4:
        return None
    for rate in _rates(model.get_submodule(host.path), state.tensor.shape[1]):
        for queries, keys, values in _triples(recording, sites, state.tensor):
            if not close(left(keys.tensor, values.tensor, rate), state.tensor):
                continue
            result = read(queries.tensor, keys.tensor, values.tensor, rate)
            found = next((s for s in sites if s.tensor.shape == result.shape and close(s.tensor, result)), None)
            if found is not None:
                _declare(recording, host, sites, (queries, keys, values), found, state)
                return found.tensor.transpose(1, 2)
    return None


def left(keys: torch.Tensor, values: torch.Tensor, rate: torch.Tensor) -> torch.Tensor:
    """The state after the last token: ``[batch, heads, key_head_dim, value_head_dim]``.

    Args:
        keys, values: ``[batch, heads, seq, …]``.
        rate: ``[heads]``; the state is multiplied by ``exp(-rate)`` before each token.
    """
    ages = torch.arange(keys.shape[2] - 1, -1, -1, device=keys.device, dtype=keys.dtype)
    kept = torch.exp(-rate.to(keys.dtype)[:, None] * ages)
    return (keys * kept[..., None]).transpose(-1, -2) @ values


def read(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, rate: torch.Tensor) -> torch.Tensor:
    """What each token reads from the state that it has just been written into: ``[batch, heads, seq, head_dim]``."""
    position = torch.arange(keys.shape[2], device=keys.device)
    ages = (position[:, None] - position[None, :]).to(keys.dtype)
    kept = torch.where(ages >= 0, torch.exp(-rate.to(keys.dtype)[:, None, None] * ages), 0)
    return (queries @ keys.transpose(-1, -2) * kept) @ values


def _rates(module: torch.nn.Module, heads: int) -> Iterator[torch.Tensor]:
    for _, buffer in [*module.named_buffers(recurse=False), *module.named_parameters(recurse=False)]:
        if buffer.numel() == heads:
            yield buffer.detach().flatten()


def _triples(recording: Recording, sites: list[Site], state: torch.Tensor) -> Iterator[tuple[Site, ...]]:
    """Three tensors with heads and tokens, in every order, the last place of each."""
    found: dict[float, Site] = {}
    for site in sites:
        held = site.tensor
        fits = held.ndim == 4 and held.shape[:2] == state.shape[:2] and held.shape[-1] in state.shape[2:]
        if fits and held.shape[2] > 1 and site.side == "output" and recording.once(site) and held.shape != state.shape:
            found[float(held.double().square().sum())] = site
    yield from permutations(list(found.values())[:3], 3)


def _declare(
    recording: Recording,
    host: HostDraft,
    sites: list[Site],
    triple: tuple[Site, ...],
    result: Site,
    state: Site,
) -> None:
    for name, layout, site in (
        ("attention_queries", "MixerKeys", triple[0]),
        ("attention_keys", "MixerKeys", triple[1]),
        ("attention_values", "MixerValues", triple[2]),
    ):
        host.values[name] = Declared(layout, location(site, host.path), WORDS[name])
    found = find(recording, sites, result.tensor.transpose(1, 2), "MixerHeads", prefer=lambda s: s.order)
    if found is not None:
        host.values["recurrence_output"] = Declared(
            "MixerHeads", found.at(host.path), WORDS["recurrence_output"], found.held
        )
    empty = [s for s in sites if s.tensor.shape == state.tensor.shape and recording.once(s) and not s.tensor.any()]
    if empty:
        host.values["state_in"] = Declared("MixerState", location(empty[-1], host.path), WORDS["state_in"])
    host.values["state_out"] = Declared("MixerState", location(state, host.path), WORDS["state_out"], observed=True)
    reason = "The forward takes a block of tokens at once, so no state after each single token is formed."
    host.values["token_states"] = Declared("MixerState", None, WORDS["token_states"], reason=reason)
    decay = "The decay is a buffer, one number a head and the same for every token."
    host.values["mixer_decay"] = Declared("MixerGates", None, WORDS["mixer_decay"], reason=decay)
