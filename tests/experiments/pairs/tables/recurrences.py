"""Pairs for kinds of recurrence, for a state that is kept in parts, and for rows of a cached step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.experiments.pairs.attentions import is_of
from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import blocks, in_turn, with_forward

State = list[torch.Tensor]
Sums = Callable[..., tuple[torch.Tensor, State]]


def gates_deaf(module: Any) -> None:
    """Gated linear recurrence: the input no longer decides how a channel fades."""
    for block in blocks(module):
        if hasattr(block.temporal_block, "rg_lru"):
            block.temporal_block.rg_lru.recurrent_gate_weight.zero_()


def forgets_alike(module: Any) -> None:
    """Matrix memory: the input no longer decides how a head's matrix fades."""
    for block in blocks(module):
        block.mlstm_layer.fgate_preact.weight.zero_()


def before(self: Any, hidden: torch.Tensor, state: State | None, place: int) -> torch.Tensor:
    """What stands one position before each, each row with its own."""
    shifted = self.time_shift(hidden)
    if state is not None:
        shifted[:, 0] = state[place][:, :, self.layer_id]
        state[place][:, :, self.layer_id] = hidden[:, -1]
    return shifted


def mixed(self: Any, name: str, hidden: torch.Tensor, shifted: torch.Tensor) -> torch.Tensor:
    share = getattr(self, f"time_mix_{name}")
    return getattr(self, name)(hidden * share + shifted * (1 - share))


def own_shift(self: Any, hidden: torch.Tensor, state: State | None = None) -> Any:
    """RWKV's MLP whose rows take only their own position before."""
    shifted = before(self, hidden, state, 0)
    key, receptance = (mixed(self, name, hidden, shifted) for name in ("key", "receptance"))
    return torch.sigmoid(receptance) * self.value(key.relu().square()), state


def attending(sums: Sums) -> Callable[..., Any]:
    """RWKV's attention whose rows take only their own position before, with sums kept in another way."""

    def forward(self: Any, hidden: torch.Tensor, state: State | None = None, use_cache: bool = False) -> Any:
        shifted = before(self, hidden, state, 1)
        receptance, key, value = (mixed(self, name, hidden, shifted) for name in ("receptance", "key", "value"))
        kept = None if state is None else [each[:, :, self.layer_id] for each in state[2:]]
        out, kept = sums(self, key, value, kept)
        for each, part in zip(state[2:] if state is not None else [], kept, strict=False):
            each[:, :, self.layer_id] = part
        return self.output(torch.sigmoid(receptance) * out), state

    return forward


def with_logarithm(self: Any, key: torch.Tensor, value: torch.Tensor, kept: State | None) -> tuple[torch.Tensor, State]:
    """Both sums divided by the exponential of the largest key so far, which is kept beside them."""
    above, below, largest = kept or [torch.zeros_like(key[:, 0]), torch.zeros_like(key[:, 0]), key[:, 0] - 1e30]
    out = []
    for k, v in zip(key.unbind(1), value.unbind(1), strict=True):
        top, then = torch.maximum(largest, k + self.time_first), torch.maximum(largest - self.time_decay.exp(), k)
        past, now = torch.exp(largest - top), torch.exp(k + self.time_first - top)
        out.append((past * above + now * v) / (past * below + now))
        old, new = torch.exp(largest - self.time_decay.exp() - then), torch.exp(k - then)
        above, below, largest = old * above + new * v, old * below + new, then
    return torch.stack(out, 1), [above, below, largest]


def as_they_are(self: Any, key: torch.Tensor, value: torch.Tensor, kept: State | None) -> tuple[torch.Tensor, State]:
    """Both sums as they are; what the third tensor holds is not used."""
    above, below, idle = kept or [torch.zeros_like(key[:, 0])] * 3
    out = []
    for k, v in zip(key.unbind(1), value.unbind(1), strict=True):
        now = torch.exp(k + self.time_first)
        out.append((above + now * v) / (below + now))
        fade = torch.exp(-self.time_decay.exp())
        above, below = fade * above + k.exp() * v, fade * below + k.exp()
    return torch.stack(out, 1), [above, below, idle]


OWN_SHIFT = with_forward(own_shift, "feed_forward")
DEAF_GATES = Twin("recurrent_gemma", mutate=gates_deaf)
FORGETS_ALIKE = Twin("xlstm", mutate=forgets_alike)
PLAIN_SUMS = Twin("rwkv", mutate=in_turn(OWN_SHIFT, with_forward(attending(as_they_are), "attention")))
OWN_ROWS = Twin("rwkv", mutate=in_turn(OWN_SHIFT, with_forward(attending(with_logarithm), "attention")))

PAIRS = (
    Pair(
        "gated-recurrence",
        yes=Twin("recurrent_gemma"),
        no=DEAF_GATES,
        mutants=(Mutant(DEAF_GATES, is_of("recurrent_gemma"), "no", "gates that the input does not decide"),),
    ),
    Pair(
        "matrix-memory",
        yes=Twin("xlstm"),
        no=FORGETS_ALIKE,
        mutants=(Mutant(FORGETS_ALIKE, is_of("xlstm"), "no", "gates that the input does not decide"),),
    ),
    Pair(
        "state-in-parts",
        yes=OWN_ROWS,
        no=PLAIN_SUMS,
        mutants=(
            Mutant(PLAIN_SUMS, is_of("rwkv"), "no", "a third tensor that is not used"),
            Mutant(
                Twin("xlstm", mutate=forgets_alike), is_of("rwkv"), "yes", "another family's memory", blocks=[0, 1, 2]
            ),
        ),
    ),
    Pair(
        "mixed-steps",
        yes=Twin("rwkv"),
        no=OWN_ROWS,
        mutants=(Mutant(OWN_ROWS, is_of("rwkv"), "no", "rows that each take their own position before"),),
    ),
)
