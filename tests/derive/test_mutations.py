"""A wrong derivation is reported: names at each other's places, factors dropped, axes mistaken, neighbours taken.

Every mutation is made to the draft before the model is built on it. What reports it is an equation that breaks, a
value that the model then cannot give, or an error that ends the probe.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from probe.derive.declare import Draft
from tests.derive.mutants import (
    Mutation,
    before_the_norm,
    caught,
    drop_factors,
    held_as,
    hosts,
    move,
    neighbours,
    subject,
    swap,
)

NORMS = swap("layer", "attention_norm_output", "mlp_norm_output")
POINTS = swap("layer", "layer_input", "layer_mid")
QUERIES_KEYS = swap("attention", "attention_queries", "attention_keys")
KEYS_VALUES = swap("attention", "attention_keys", "attention_values")
PATTERN = swap("attention", "attention_scores", "attention_probabilities")
NEURONS = swap("mlp", "mlp_activation", "mlp_neurons")
ADDED = swap("layer", "layer_output", "layer_input")
ROUTED = swap("moe", "routed_output", "shared_expert_output")
HEADS_INSIDE = held_as("attention_premix", "batch seq (head_dim num_heads)")
SEQ_FOR_HEADS = held_as("attention_queries", "batch seq num_heads qk_head_dim")
VALUE_ROWS = held_as("attention_values", "batch seq num_kv_heads head_dim")
AFTER_ATTENTION = before_the_norm("attention", "attention_output")
AFTER_MLP = before_the_norm("mlp", "mlp_output")
NORM_INPUT = move("layer", "mlp_norm_output", "post_attention_layernorm.input")

NAMED: dict[str, tuple[Mutation, tuple[str, ...]]] = {
    "two norms swapped": (NORMS, ("llama", "qwen3", "gpt2", "mpt", "opt", "granite", "mixtral", "minicpm3", "bloom")),
    "two points of the stream swapped": (POINTS, ("starcoder2", "qwen3_next", "glm4", "gpt_neo", "deepseek_v3")),
    "the stream before and after the block swapped": (ADDED, ("cohere", "mamba", "falcon", "jamba", "olmo2")),
    "queries and keys swapped": (QUERIES_KEYS, ("gpt_neox", "bloom", "mpt", "phi3", "deepseek_v3", "codegen", "gptj")),
    "keys and values swapped": (KEYS_VALUES, ("llama", "gpt2", "falcon", "gpt_bigcode", "qwen3", "opt", "gemma2")),
    "scores and pattern swapped": (PATTERN, ("gpt_oss", "gemma2", "bloom", "cohere2", "exaone4")),
    "activation and neurons swapped": (NEURONS, ("llama", "olmo2", "granite", "phi3", "stablelm")),
    "the shared expert and the routed sum swapped": (ROUTED, ("deepseek_v3", "qwen3_next", "glm4_moe", "ernie4_5_moe")),
    "heads taken for channels": (HEADS_INSIDE, ("llama", "gpt_neox", "falcon", "deepseek_v2", "biogpt")),
    "heads taken for positions": (SEQ_FOR_HEADS, ("qwen3", "gptj", "starcoder2")),
    "value heads taken for positions": (VALUE_ROWS, ("llama", "mixtral", "minicpm3")),
    "the attention's contribution before its norm": (AFTER_ATTENTION, ("gemma2", "olmo2", "glm4", "exaone4")),
    "the MLP's contribution before its norm": (AFTER_MLP, ("gemma2", "olmo2", "glm4", "exaone4")),
    "what the MLP's norm gives read where it takes": (NORM_INPUT, ("llama", "qwen3", "mixtral", "granite")),
}


@pytest.mark.parametrize(
    ("mutation", "family"),
    [pytest.param(name, family, id=f"{name}-{family}") for name, (_, families) in NAMED.items() for family in families],
)
def test_a_named_mistake(mutation: str, family: str) -> None:
    assert caught(family, "tiny", NAMED[mutation][0])


@pytest.mark.parametrize("family", ["granite", "granitemoe", "falcon_h1", "minimax", "doge", "zaya", "minicpm3"])
def test_a_dropped_factor(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    subject(family, "tiny")  # the right one first
    drop_factors(monkeypatch)
    assert caught(family, "tiny", lambda drafted: None)


@pytest.mark.parametrize(
    ("family", "scale", "cap"), [("granite", 1.0, None), ("gemma2", 1.0, None), ("cohere", 1.0, None)]
)
def test_what_is_done_past_the_head_forgotten(family: str, scale: float, cap: float | None) -> None:
    def mutate(drafted: Draft) -> None:
        assert (drafted.scale, drafted.cap) != (scale, cap)
        drafted.scale, drafted.cap = scale, cap

    assert caught(family, "tiny", mutate)


KINDS = {
    "qwen3": "grouped heads, normed",
    "gpt_neox": "parallel, fused interleaved",
    "falcon": "parallel, one key",
    "bloom": "residual added inside, alibi",
    "mpt": "fused in blocks, alibi",
    "gpt2": "transposed linear layers",
    "opt": "learned positions, biases",
    "codegen": "fused in shards",
    "gemma2": "sandwich norms, softcap",
    "olmo2": "norms after only",
    "granite": "scaled adds",
    "cohere2": "parallel, windows",
    "gpt_bigcode": "one key, fused",
    "minicpm3": "latent attention, scaled adds",
    "deepseek_v3": "latent attention, groups of experts",
    "mixtral": "experts",
    "gpt_oss": "experts with biases, sinks",
    "qwen3_next": "gated delta rule, gated attention, shared expert",
    "mamba": "state space alone",
    "falcon_h1": "state space beside attention",
    "gptj": "arithmetic of its own, parallel",
    "stablelm": "partial rotation",
}


STILL_TRUE = {
    ("falcon_h1", "mixer_gate"): "behind its activation it is a gate too, and the equation then names no activation",
}
"""Values that a neighbour can stand for, since the equation that is then reported is true of it."""


@pytest.mark.parametrize("family", KINDS)
def test_a_neighbour_of_the_same_shape(family: str) -> None:
    """No value may be read at the operation or module next to it that holds another tensor of its shape."""
    known = subject(family, "tiny")
    tried, missed = set(), set()
    for host in (host for block in known.draft.blocks for host in block.hosts):
        for name, value in host.values.items():
            for to in [] if (host.role, name, value.at) in tried else neighbours(known, host, value):

                def mutate(drafted: Draft, role=host.role, name=name, at=value.at, to=to) -> None:
                    for each in hosts(drafted, role):
                        if name in each.values and each.values[name].at == at:
                            each.values[name] = replace(each.values[name], at=to)

                if not caught(family, "tiny", mutate):
                    missed.add((family, name))
            tried.add((host.role, name, value.at))
    assert len(tried) > 5
    assert missed == {key for key in STILL_TRUE if key[0] == family}
