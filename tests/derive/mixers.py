"""A family of every kind of recurrent mixer, what its mixer serves, and its twin measured."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from probe.checkpoints import load, targets
from probe.measure.checks import mixer
from probe.measure.identities import Identity, evaluate
from probe.measure.run import Run, measure
from probe.standard import StandardizedTransformer

DELTA = "attention_queries attention_keys attention_values mixer_decay mixer_beta recurrence_output state_in state_out"
SCAN = "mixer_x mixer_b mixer_c mixer_dt mixer_step_size recurrence_output state_in state_out"
CONVOLUTION = "conv_input conv_output"
ENDS = "mixer_gate attention_premix attention_output"
OBSERVED = {"state_out", "normalizer_out", "stabilizer_out", "token_states"}
"""Values that are read only; of a scan for each head, those that stand for one head at a time, too."""

ONE_BY_ONE = {"mixer_b", "mixer_c", "mixer_dt", "mixer_step_size", "recurrence_output"}


class Case(NamedTuple):
    """A family's mixer.

    Attributes:
        values: those that are served beside the ends.
        without: those that stand nowhere, and a part of the reason.
        host: its standard name.
    """

    family: str
    kind: str
    values: str
    without: dict[str, str] = {}
    host: str = "linear_attn"

    def __str__(self) -> str:
        return f"{self.family}-{self.kind.replace(' ', '-')}"

    @property
    def served(self) -> list[str]:
        return [*self.values.split(), *ENDS.split()]


CHUNKS = {"token_states": "a chunk of tokens at once"}
CASES = [
    Case("qwen3_next", "gated delta rule", f"{CONVOLUTION} {DELTA}", CHUNKS),
    Case("olmo_hybrid", "gated delta rule with negative eigenvalues", f"{CONVOLUTION} {DELTA}", CHUNKS),
    Case("kimi_linear", "delta rule with a decay a channel", f"{CONVOLUTION} {DELTA}", CHUNKS),
    Case("mamba", "selective scan", f"{CONVOLUTION} {SCAN} token_states"),
    Case("jamba", "selective scan beside attention", f"{CONVOLUTION} {SCAN} token_states"),
    Case(
        "zamba",
        "selective scan for each head",
        f"{CONVOLUTION} {SCAN.replace('state_in ', '')} token_states",
        {"state_in": "once for each of 2 heads"},
    ),
    Case("mamba2", "state space dual", f"{CONVOLUTION} {SCAN} mixer_decay", CHUNKS),
    Case("falcon_h1", "state space dual without a norm", f"{CONVOLUTION} {SCAN} mixer_decay", CHUNKS),
    Case("zamba2", "state space dual in a block of its own", f"{CONVOLUTION} {SCAN} mixer_decay", CHUNKS),
    Case(
        "minimax",
        "lightning attention",
        "attention_queries attention_keys attention_values recurrence_output state_in state_out",
        {"mixer_decay": "a buffer", "token_states": "a block of tokens at once"},
    ),
    Case("lfm2", "short convolution", f"{CONVOLUTION} mixer_input_gate mixer_x"),
    Case("lfm3", "short convolution before a norm", f"{CONVOLUTION} mixer_input_gate mixer_x"),
    Case(
        "recurrent_gemma",
        "linear recurrent unit",
        f"{CONVOLUTION} mixer_x mixer_decay mixer_input_gate recurrence_output state_out token_states",
        {"state_in": "resets its state"},
    ),
    Case(
        "rwkv",
        "weighted average",
        "attention_keys attention_values recurrence_output state_out normalizer_out stabilizer_out token_states",
        {"state_in": "reads nothing of it"},
    ),
    Case(
        "xlstm",
        "matrix memory",
        "attention_queries attention_keys attention_values mixer_input_gate mixer_forget_gate recurrence_output "
        "state_out normalizer_out stabilizer_out",
        {"state_in": "not opened", "token_states": "chunks of tokens"},
    ),
]


@cache
def loaded(family: str) -> StandardizedTransformer:
    target = next(target for target in targets(family) if target.kind == "tiny")
    return StandardizedTransformer(load(target, attn="eager"))


@cache
def run_of(family: str) -> Run:
    return measure(loaded(family))


def blocks_of(case: Case) -> list[int]:
    run = run_of(case.family)
    return [
        index
        for index, contributions in enumerate(run.text.contributions)
        if any(c.host == case.host and c.term.kind == "mixer" for c in contributions)
    ]


def identities(case: Case) -> list[Identity]:
    """The mixer's checks, of what the readings of the run are now."""
    run = run_of(case.family)
    run.text.__dict__.pop("_recurrences", None)
    return [i for i in evaluate(run, run.text, mixer.checks(run.text)) if i.blocks]
