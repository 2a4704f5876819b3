"""A mixer's recurrence, run again a token at a time from the values that were read, against what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ..identities import Block, Form
from . import recurrences


def parameters(module: torch.nn.Module, size: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers of as many numbers, flat, in float32."""
    for name, held in [*module.named_parameters(), *module.named_buffers()]:
        if held.numel() == size:
            yield name, held.detach().float().flatten()


@dataclass
class Ran:
    """One way to run a recurrence.

    Attributes:
        written: how it is written.
        reads: what the tokens read, each with what is added to it: nothing first, or a skip of the input.
        states: after each token, tokens on axis 1, or after the last one only, where there are two that scale together.
    """

    written: str
    reads: list[tuple[str, torch.Tensor]]
    states: tuple[torch.Tensor, ...]


def outputs(block: Block, host: str) -> Iterator[Form]:
    """What each token reads."""
    result = block.value(host, "recurrence_output")
    premix, gate = block.value(host, "attention_premix"), block.value(host, "mixer_gate")
    for ran in _runs(block, host):
        for more, made in reversed(ran.reads):
            written = ran.written + more
            if result is not None:
                yield Form(f"{written} == recurrence_output", (made.reshape(result.shape), result))
            elif premix is not None and gate is not None:
                gated = made.flatten(2) * torch.nn.functional.silu(gate.flatten(2))
                yield Form(f"({written}) * silu(mixer_gate) == attention_premix", (gated, premix))


def left(block: Block, host: str) -> Iterator[Form]:
    """The state after the last token, with what belongs to it."""
    state = block.value(host, "state_out")
    if state is None:
        return
    norm, top = block.value(host, "normalizer_out"), block.value(host, "stabilizer_out")
    for ran in _runs(block, host):
        states = ran.states
        if norm is None or top is None:
            yield Form(f"last state of {ran.written} == state_out", (states[0][:, -1].reshape(state.shape), state))
        elif len(states) == 3:
            made = torch.cat([item[:, -1] for item in states])
            held = torch.cat([state, norm, top])
            yield Form(f"last states of {ran.written} == state_out, normalizer_out, stabilizer_out", (made, held))
        else:
            scale = top.exp()[..., None]
            held = torch.cat([state * scale[..., None], (norm * scale)[..., None]], -1)
            made = torch.cat([states[0], states[1][..., None]], -1)
            scaled = "exp(stabilizer_out) * [state_out, normalizer_out]"
            yield Form(f"last states of {ran.written} == {scaled}", (made, held))


def tokens(block: Block, host: str) -> Iterator[Form]:
    """The state after each token."""
    held = block.value(host, "token_states")
    if held is not None:
        for ran in _runs(block, host):
            yield Form(f"states of {ran.written} == token_states", (ran.states[0].reshape(held.shape), held))


def _runs(block: Block, host: str) -> Iterator[Ran]:
    """Each way to run the recurrence, made once a block and kept."""
    cache: dict[tuple[int, str], _Kept] = block.stack.__dict__.setdefault("_recurrences", {})
    if (block.index, host) not in cache:
        cache[block.index, host] = _Kept(_all(block, host))
    yield from cache[block.index, host]


class _Kept:
    """The items of an iterator, made once each and kept."""

    def __init__(self, items: Iterator[Ran]) -> None:
        self._items, self._made = items, list[Ran]()

    def __iter__(self) -> Iterator[Ran]:
        at = 0
        while True:
            if at == len(self._made):
                following = next(self._items, None)
                if following is None:
                    return
                self._made.append(following)
            yield self._made[at]
            at += 1


def _all(block: Block, host: str) -> Iterator[Ran]:
    module = block.part(host)
    if module is not None:
        yield from _keyed(block, host, module)
        yield from _scanned(block, host, module)
        yield from _unit(block, host)


def _keyed(block: Block, host: str, module: torch.nn.Module) -> Iterator[Ran]:
    names = ("attention_queries", "attention_keys", "attention_values")
    queries, keys, values = (block.value(host, name) for name in names)
    log_decay, beta = block.value(host, "mixer_decay"), block.value(host, "mixer_beta")
    enter, keep = block.value(host, "mixer_input_gate"), block.value(host, "mixer_forget_gate")
    start, after = _start(block, host)
    if keys is None or values is None:
        return
    if queries is None:
        sizes = list(parameters(module, keys.shape[-1]))
        for (decay, falling), (first, added) in ((one, two) for one in sizes for two in sizes if one is not two):
            read, *states = recurrences.average(keys, values, falling, added)
            written = f"average(attention_keys, attention_values, {decay}, {first})"
            yield Ran(written, [("", read)], tuple(states))
    elif log_decay is not None and beta is not None:
        for normed, shown in ((True, "unit attention_queries, unit attention_keys"), (False, ", ".join(names[:2]))):
            made, state = recurrences.delta(queries, keys, values, log_decay, beta, start, normed=normed)
            written = f"delta rule({shown}, attention_values, mixer_decay, mixer_beta{after})"
            yield Ran(written, [("", made)], (state,))
    elif enter is not None and keep is not None:
        made, *rest = recurrences.matrix_memory(queries, keys, values, enter, keep)
        yield Ran(f"mLSTM({', '.join(names)}, mixer_input_gate, mixer_forget_gate)", [("", made)], tuple(rest))
    else:
        for name, rate in parameters(module, keys.shape[1]):
            made, state = recurrences.linear(queries, keys, values, rate, start)
            yield Ran(f"linear attention({', '.join(names)}, exp(-{name}){after})", [("", made)], (state,))


def _scanned(block: Block, host: str, module: torch.nn.Module) -> Iterator[Ran]:
    x, b, c = (block.value(host, name) for name in ("mixer_x", "mixer_b", "mixer_c"))
    start, after = _start(block, host)
    if x is None or b is None or c is None:
        return
    if x.ndim == 3:
        x, b, c = x[:, :, None], b[:, :, None], c[:, :, None]
        start = None if start is None else start[:, None]
    for shown, step in _steps(block, host, module, x):
        for decays, log_decay in _decays(block, host, module, step, b.shape[-1]):
            made, states = recurrences.scan(x, b, c, step, log_decay, start)
            reads = [("", made)]
            for size in dict.fromkeys((x.shape[2] * x.shape[3], x.shape[2])):
                for name, skip in parameters(module, size):
                    reads.append((f" + {name} * mixer_x", made + skip.view(x.shape[2], -1) * x))
            yield Ran(f"scan(mixer_x, mixer_b, mixer_c, {shown}, {decays}{after})", reads, (states,))


def _start(block: Block, host: str) -> tuple[torch.Tensor | None, str]:
    """The state before the first token, where it is served, and how it is written."""
    start = block.value(host, "state_in")
    return start, "" if start is None else ", state_in"


def _steps(block: Block, host: str, module: torch.nn.Module, x: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Step sizes: those that were read, or what the softplus makes of those that the recurrence takes."""
    step, raw = block.value(host, "mixer_step_size"), block.value(host, "mixer_dt")
    if step is not None:
        yield "mixer_step_size", step.view(x.shape) if step.numel() == x.numel() else step
    elif raw is not None:
        for name, bias in parameters(module, raw[0, 0].numel()):
            made = torch.nn.functional.softplus(raw + bias.view(raw.shape[2:]))
            yield f"softplus(mixer_dt + {name})", made


def _decays(
    block: Block, host: str, module: torch.nn.Module, step: torch.Tensor, state: int
) -> Iterator[tuple[str, torch.Tensor]]:
    """Log decays, with axes for head, channel and state."""
    log_decay = block.value(host, "mixer_decay")
    if log_decay is not None:
        yield "mixer_decay", log_decay[..., None, None]
        return
    for name, rate in parameters(module, step[0, 0].numel() * state):
        yield f"-exp({name}) * step size", -rate.exp().view(*step.shape[2:], state) * step[..., None]


def _unit(block: Block, host: str) -> Iterator[Ran]:
    x, log_decay, b = (block.value(host, name) for name in ("mixer_x", "mixer_decay", "mixer_b"))
    if x is not None and log_decay is not None and b is None:
        made, states = recurrences.unit(x, log_decay)
        yield Ran("linear recurrent unit(mixer_x, mixer_decay)", [("", made)], (states,))
