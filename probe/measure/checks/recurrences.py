"""Recurrences in plain PyTorch, a token at a time: what the mixers' functions compute, as the papers write it.

Each takes its inputs in the axes of their layouts and gives ``(outputs, states)``: what each token reads, and the state
after each token, both with the tokens on axis 1.
"""

from __future__ import annotations

import torch

Result = tuple[torch.Tensor, torch.Tensor]


def delta(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    log_decay: torch.Tensor,
    beta: torch.Tensor,
    start: torch.Tensor | None,
    *,
    normed: bool,
) -> Result:
    """The gated delta rule: a state decays, forgets what it holds under a key, and takes the value instead.

    Args:
        queries, keys: ``[batch, key heads, seq, key_head_dim]``; a head may serve several value heads.
        values: ``[batch, heads, seq, value_head_dim]``.
        log_decay: ``[batch, seq, heads]``, or ``[batch, seq, heads, key_head_dim]``.
        beta: ``[batch, seq, heads]``.
        start: ``[batch, heads, key_head_dim, value_head_dim]``, the state before the first token; zeros where None.
        normed: whether queries and keys are brought to unit length first.

    Returns:
        ``[batch, seq, heads, value_head_dim]``, and ``[batch, seq, heads, key_head_dim, value_head_dim]``.
    """
    groups = values.shape[1] // keys.shape[1]
    if normed:
        queries, keys = (x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for x in (queries, keys))
    queries, keys = (x.repeat_interleave(groups, dim=1) for x in (queries, keys))
    queries = queries * queries.shape[-1] ** -0.5
    kept = log_decay.exp()[..., None] if log_decay.ndim == 4 else log_decay.exp()[..., None, None]
    state = values.new_zeros(*values.shape[:2], keys.shape[-1], values.shape[-1]) if start is None else start
    outputs, states = [], []
    for t in range(values.shape[2]):
        key, value = keys[:, :, t], values[:, :, t]
        state = state * kept[:, t]
        held = (state * key[..., None]).sum(-2)
        state = state + key[..., None] * ((value - held) * beta[:, t, :, None])[..., None, :]
        outputs.append((state * queries[:, :, t, :, None]).sum(-2))
        states.append(state)
    return torch.stack(outputs, 1), torch.stack(states, 1)


def linear(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, rate: torch.Tensor, start: torch.Tensor | None
) -> Result:
    """Linear attention whose state decays by ``exp(-rate)`` a token, a number a head.

    Args:
        queries, keys, values: ``[batch, heads, seq, …]``.
        rate: ``[heads]``.
        start: the state before the first token; zeros where None.
    """
    kept = torch.exp(-rate)[:, None, None]
    state = values.new_zeros(*values.shape[:2], keys.shape[-1], values.shape[-1]) if start is None else start
    outputs, states = [], []
    for t in range(values.shape[2]):
        state = state * kept + keys[:, :, t, :, None] * values[:, :, t, None, :]
        outputs.append((queries[:, :, t, None, :] @ state)[..., 0, :])
        states.append(state)
    return torch.stack(outputs, 1), torch.stack(states, 1)


def scan(
    x: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    step: torch.Tensor,
    log_decay: torch.Tensor,
    start: torch.Tensor | None,
) -> Result:
    """A selective state-space scan, without the skip of x.

    Args:
        x: ``[batch, seq, heads, head_dim]``.
        b, c: ``[batch, seq, groups, state_size]``; a group may serve several heads.
        step: ``[batch, seq, heads]`` or ``[batch, seq, heads, head_dim]``.
        log_decay: broadcasts to ``[batch, seq, heads, head_dim, state_size]``.
        start: ``[batch, heads, head_dim, state_size]``, the state before the first token; zeros where None.

    Returns:
        ``[batch, seq, heads, head_dim]``, and ``[batch, seq, heads, head_dim, state_size]``.
    """
    groups = x.shape[2] // b.shape[2]
    b, c = (item.repeat_interleave(groups, dim=2) for item in (b, c))
    step = step[..., None] if step.ndim == 3 else step
    kept = log_decay.exp()
    state = x.new_zeros(x.shape[0], *x.shape[2:], b.shape[-1]) if start is None else start
    outputs, states = [], []
    for t in range(x.shape[1]):
        state = state * kept[:, t] + (step[:, t] * x[:, t])[..., None] * b[:, t, :, None, :]
        outputs.append((state * c[:, t, :, None, :]).sum(-1))
        states.append(state)
    return torch.stack(outputs, 1), torch.stack(states, 1)


def unit(x: torch.Tensor, log_decay: torch.Tensor) -> Result:
    """A linear recurrent unit: ``h = exp(log_decay) * h + x``, all ``[batch, seq, channels]``."""
    state = torch.zeros_like(x[:, 0])
    states = []
    for t in range(x.shape[1]):
        state = (log_decay[:, t].exp() * state if t else state) + x[:, t]
        states.append(state)
    return torch.stack(states, 1), torch.stack(states, 1)


def average(
    keys: torch.Tensor, values: torch.Tensor, decay: torch.Tensor, first: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """RWKV's weighted average: values weighted with ``exp(key)``, less the older they are, the current one apart.

    Args:
        keys, values: ``[batch, seq, channels]``.
        decay: ``[channels]``; a token's weight falls by ``exp(-exp(decay))`` at each later one.
        first: ``[channels]``, added to the current token's key.

    Returns:
        The average for each token; and after each token the numerator, the denominator and the exponent that both are
        scaled down by: ``[batch, seq, channels]`` each.
    """
    rate = -decay.exp()
    over = under = torch.zeros_like(keys[:, 0])
    top = torch.full_like(keys[:, 0], -1e38)
    found = []
    for t in range(keys.shape[1]):
        key, value = keys[:, t], values[:, t]
        best = torch.maximum(top, key + first)
        old, new = (top - best).exp(), (key + first - best).exp()
        read = (old * over + new * value) / (old * under + new)
        best = torch.maximum(top + rate, key)
        old, new = (top + rate - best).exp(), (key - best).exp()
        over, under, top = old * over + new * value, old * under + new, best
        found.append((read, over, under, top))
    read, over, under, top = (torch.stack(items, 1) for items in zip(*found, strict=True))
    return read, over, under, top


def matrix_memory(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, enter: torch.Tensor, keep: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The mLSTM: a matrix memory with exponential gates, and a normalizer.

    Args:
        queries, keys, values: ``[batch, heads, seq, …]``.
        enter, keep: ``[batch, seq, heads]``, the input and the forget gate before their activations.

    Returns:
        ``[batch, seq, heads, value_head_dim]``; memory and normalizer after the last token, not scaled down.
    """
    queries = queries * queries.shape[-1] ** -0.5
    keep = torch.nn.functional.logsigmoid(keep)
    memory = values.new_zeros(*values.shape[:2], keys.shape[-1], values.shape[-1])
    norm, top = torch.zeros_like(keys[:, :, 0]), torch.zeros_like(enter[:, 0])
    outputs = []
    for t in range(values.shape[2]):
        best = torch.maximum(keep[:, t] + top, enter[:, t])
        old, new = (keep[:, t] + top - best).exp()[..., None], (enter[:, t] - best).exp()[..., None]
        memory = old[..., None] * memory + new[..., None] * keys[:, :, t, :, None] * values[:, :, t, None, :]
        norm, top = old * norm + new * keys[:, :, t], best
        read = (queries[:, :, t, None, :] @ memory)[..., 0, :]
        weight = (queries[:, :, t] * norm).sum(-1).abs()
        outputs.append(read / (torch.maximum(weight, (-top).exp()) + 1e-6)[..., None])
    scale = top.exp()[..., None]
    return torch.stack(outputs, 1), memory * scale[..., None], norm * scale
