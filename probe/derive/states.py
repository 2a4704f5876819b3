"""The states of a recurrence: what the first token finds, what each token leaves, and what is left in the end."""

from __future__ import annotations

import torch

from .declare import Declared, HostDraft
from .find import location
from .kernels import Call
from .mixer_words import WORDS
from .placing import observe, only_in_pytorch, refuse
from .sites import Recording, Site

LAYOUT = {"delta": "MixerState", "mlstm": "MixerState", "wkv": "ChannelVector", "lru": "ChannelVector"}
TOKENS = {"ChannelState": "ChannelTokenStates", "ScanState": "ScanTokenStates", "ChannelVector": "Channels"}


def describe(recording: Recording, host: HostDraft, call: Call, seq: int) -> None:
    """Fill in the states of a mixer whose recurrence is a function's call."""
    layout = LAYOUT.get(call.kind) or ("ChannelState" if _channelwise(call) else "ScanState")
    shape = _shape(call)
    inner = [s for s in call.inside(recording.below(host.path)) if s.side == "output"]
    held = [site for site in inner if site.tensor.shape == shape or site.tensor.shape == (shape[0], 1, *shape[1:])]
    if call.kind == "wkv":
        _weighted(recording, host, call, inner, shape, seq)
        return
    _entering(recording, host, call, held, layout)
    if call.kind == "lru":
        _returned(host, call, layout, {"state_out": 1})
        tokens = call.results[0][0]
        host.values["token_states"] = Declared(
            "Channels", location(tokens, host.path), WORDS["token_states"].split(",")[0]
        )
        return
    if call.kind == "mlstm":
        _returned(host, call, layout, {"state_out": 1, "normalizer_out": 2, "stabilizer_out": 3})
        refuse(host, "token_states", "MixerState", f"{call.name} works on chunks of tokens, and hides how.")
        return
    looped = _looped(recording, call, inner, held, seq)
    final = next(
        (s for s in reversed(held) if recording.once(s) and s.tensor.any() and s.tensor.ndim == len(shape)), None
    )
    if looped is not None:
        site, chunk = looped
        observe(host, "state_out", layout if call.runs == 1 else "ScanState", site, chunk=chunk, runs=call.runs)
    elif final is not None:
        observe(host, "state_out", layout, final)
    else:
        refuse(host, "state_out", layout, _hidden(call, "state_out"))
    if looped is not None and looped[1] == 1:
        tokens_layout = TOKENS[layout if call.runs == 1 else "ScanState"]
        observe(host, "token_states", tokens_layout, looped[0], chunk=1, runs=call.runs, last=False)
    else:
        refuse(host, "token_states", layout, _chunks(call))


def _channelwise(call: Call) -> bool:
    return call.tensors("hidden_states")[0].ndim == 3


def _shape(call: Call) -> tuple[int, ...]:
    """Of the state in one call of the function."""
    if call.kind in ("delta", "mlstm"):
        keys, values = call.tensors("key")[0], call.tensors("value")[0]
        heads = values.shape[2 if call.kind == "delta" else 1]
        return values.shape[0], heads, keys.shape[-1], values.shape[-1]
    if call.kind == "wkv":
        key = call.tensors("key")[0]
        return key.shape[0], key.shape[-1]
    given = call.tensors("hidden_states")[0]
    if call.kind == "lru":
        return given.shape[0], given.shape[-1]
    state = call.tensors("B")[0].shape[1 if given.ndim == 3 else -1]
    return (*given.shape[:2], state) if given.ndim == 3 else (given.shape[0], *given.shape[2:], state)


def _entering(recording: Recording, host: HostDraft, call: Call, held: list[Site], layout: str) -> None:
    """The state that the function starts from, where a place holds it: nothing was cached, so these are zeros."""
    resets = call.tensors("reset")
    if resets and bool(resets[0][:, 0].all()):
        refuse(host, "state_in", layout, "The scan resets its state at the first position, so nothing enters it.")
        return
    if call.runs > 1:
        refuse(host, "state_in", layout, f"{call.name} runs once for each of {call.runs} heads, each from zeros.")
        return
    zeros = [site for site in held if recording.once(site) and not site.tensor.any()]
    if not zeros or call.fused:
        refuse(host, "state_in", layout, _hidden(call, "state_in"))
        return
    host.values["state_in"] = Declared(layout, location(zeros[-1], host.path), WORDS["state_in"])


def _hidden(call: Call, name: str) -> str:
    if call.fused and (said := only_in_pytorch(call, name)):
        return said
    how = "as a fused kernel" if call.fused else "in code that is not opened"
    return f"{call.name} ran {how}, and no named place inside holds the state."


def _chunks(call: Call) -> str:
    if call.fused and call.chunk is None:
        return _hidden(call, "token_states")
    return f"{call.name} takes a chunk of tokens at once, so no state after each single token is formed."


def _looped(recording: Recording, call: Call, inner: list[Site], held: list[Site], seq: int) -> tuple[Site, int] | None:
    """The last operation that gives the state once a pass of the loop over tokens or chunks, and the tokens a pass."""
    squares = {
        site.tensor.shape[-1] for site in inner if site.tensor.ndim > 1 and len(set(site.tensor.shape[-2:])) == 1
    }
    chunks = [1, call.chunk] if call.chunk is not None and call.chunk in squares else [1]
    for chunk in chunks:
        passes = -(-seq // chunk) * call.runs * recording.repeats
        for site in held:
            if recording.calls[site.module, site.steps] == passes and site.called is None and site.tensor.any():
                return site, chunk
    return None


def _returned(host: HostDraft, call: Call, layout: str, at: dict[str, int]) -> None:
    """States that the function gives beside its result: name and place among what it gives."""
    for name, position in at.items():
        own = {"state_out": layout, "normalizer_out": "MixerNormalizer", "stabilizer_out": "MixerStabilizer"}[name]
        if position < len(call.results):
            site = call.results[position][0]
            observe(host, name, own, site)
        else:
            refuse(host, name, own, f"{call.name} gave no state.")


def _weighted(
    recording: Recording, host: HostDraft, call: Call, inner: list[Site], shape: tuple[int, ...], seq: int
) -> None:
    """RWKV's average: a numerator, a denominator and their common exponent, in a loop over the tokens."""
    reason = "The average starts with weight exp(-1e38) = 0 on what enters, so a prefill reads nothing of it."
    refuse(host, "state_in", "ChannelVector", reason)
    key, value = call.tensors("key")[0].float(), call.tensors("value")[0].float()
    passed = [
        s for s in inner if s.tensor.shape == shape and recording.calls[s.module, s.steps] == seq * recording.repeats
    ]
    first = {"stabilizer_out": key[:, 0], "normalizer_out": torch.ones_like(key[:, 0]), "state_out": value[:, 0]}
    for name, tensor in first.items():
        site = next((s for s in reversed(passed) if s.called is None and torch.equal(s.tensor, tensor)), None)
        if site is None:
            refuse(host, name, "ChannelVector", _hidden(call, name))
            continue
        observe(host, name, "ChannelVector", site, chunk=1)
        if name == "state_out":
            observe(host, "token_states", "Channels", site, chunk=1, last=False)
