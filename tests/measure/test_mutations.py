"""A probe of a twin that was made wrong on purpose fails: moved locations, dropped factors, swapped neighbours.

Each mutation changes one thing that a maintainer could get wrong, and the probe must refuse to write a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch

from probe.checkpoints import Target, load, targets
from probe.errors import ProbeError
from probe.measure import collect
from probe.record import findings
from probe.record.assembled import probe_target
from probe.standard import StandardizedTransformer, family_module
from probe.values.hosts import Host
from probe.values.location import Location

Mutation = Callable[[pytest.MonkeyPatch], None]


def _host(family: str, native: str) -> type[Host]:
    return next(host for cls, host in family_module(family).ENVOYS.items() if cls.__name__ == native)


def move(family: str, native: str, name: str, to: str) -> Mutation:
    """Read a value at another place."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        host = _host(family, native) if native else StandardizedTransformer
        patch.setattr(host.standard_values()[name], "location", Location.parse(to))

    return mutate


def swap(family: str, native: str, first: str, second: str) -> Mutation:
    """Read two neighbours at each other's places."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        values = _host(family, native).standard_values()
        one, other = values[first].location, values[second].location
        patch.setattr(values[first], "location", other)
        patch.setattr(values[second], "location", one)

    return mutate


def drop_the_scalar(patch: pytest.MonkeyPatch) -> None:
    derive = findings.measure.__globals__["derive"]

    def without(blocks: Any, forward: Any) -> Any:
        return [replace(anatomy, factors=(), tree=anatomy.tree.of) for anatomy in derive(blocks, forward)]

    patch.setitem(findings.measure.__globals__, "derive", without)


def leave_rows_unnormalised(patch: pytest.MonkeyPatch) -> None:
    """An eager attention whose rows sum to two."""
    from transformers.models.llama import modeling_llama

    right = torch.nn.functional.softmax

    def wrong(scores: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return right(scores, *args, **kwargs) * (2.0 if scores.ndim == 4 else 1.0)

    patch.setattr(modeling_llama.nn.functional, "softmax", wrong)


def forget_the_softcap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StandardizedTransformer, "after_head", lambda self, logits: logits)


MUTATIONS: dict[str, tuple[str, str, Mutation]] = {
    "the norm before the attention read after it": (
        "gemma4_text",
        "tiny",
        move("gemma4_text", "Gemma4TextDecoderLayer", "attention_norm_output", "post_attention_layernorm.output"),
    ),
    "the stream inside a sandwich block read where Llama has it": (
        "gemma4_text",
        "tiny",
        move("gemma4_text", "Gemma4TextDecoderLayer", "layer_mid", "post_attention_layernorm.input"),
    ),
    "the norm before the MLP read at the norm after it": (
        "gemma4_text",
        "tiny",
        move("gemma4_text", "Gemma4TextDecoderLayer", "mlp_norm_output", "post_feedforward_layernorm.output"),
    ),
    "a contribution read before its norm": (
        "gemma4_text",
        "tiny",
        move("gemma4_text", "Gemma4TextAttention", "attention_output", "output[0]"),
    ),
    "the per-layer branch read before its norm": (
        "gemma4_text",
        "tiny",
        move("gemma4_text", "Gemma4TextDecoderLayer", "per_layer_output", "per_layer_projection.output"),
    ),
    "the block's scalar dropped": ("gemma4_text", "tiny", drop_the_scalar),
    "the softcap forgotten": ("gemma4_text", "tiny", forget_the_softcap),
    "head outputs and premix from the wrong blocks' side: keys and values swapped": (
        "llama",
        "tiny-mha",
        swap("llama", "LlamaAttention", "attention_keys", "attention_values"),
    ),
    "queries and keys swapped": (
        "llama",
        "tiny-mha",
        swap("llama", "LlamaAttention", "attention_queries", "attention_keys"),
    ),
    "the pattern read before the softmax": (
        "llama",
        "tiny",
        move(
            "llama",
            "LlamaAttention",
            "attention_probabilities",
            "source.attention_interface_1.source.nn_functional_softmax_0.input",
        ),
    ),
    "the pattern's rows not normalised": ("llama", "tiny", leave_rows_unnormalised),
    "the activation read before the activation function": (
        "llama",
        "tiny",
        move("llama", "LlamaMLP", "mlp_activation", "gate_proj.output"),
    ),
    "activation and neurons swapped": ("llama", "tiny", swap("llama", "LlamaMLP", "mlp_activation", "mlp_neurons")),
    "the final norm's output read at its input": (
        "llama",
        "tiny",
        move("llama", "", "final_norm_output", "norm.input"),
    ),
    "the head's output read after the softcap": (
        "gemma4_text",
        "tiny",
        move("gemma4_text", "", "lm_head_output", "output['logits']"),
    ),
    "the router's logits read after its softmax": (
        "gemma4_text",
        "tiny-moe",
        move("gemma4_text", "Gemma4TextMLP", "router_logits", "parent.router.output[0]"),
    ),
    "the dense and the routed half of a mixture swapped": (
        "gemma4_text",
        "tiny-moe",
        swap("gemma4_text", "Gemma4TextMLP", "shared_expert_output", "routed_output"),
    ),
    "the shared expert and the routed sum swapped": (
        "llama4_text",
        "tiny-interleaved",
        swap("llama4_text", "Llama4TextMoe", "shared_expert_output", "routed_output"),
    ),
    "the mixture's output taken for its shared expert's": (
        "llama4_text",
        "tiny-interleaved",
        move("llama4_text", "Llama4TextMoe", "mlp_output", "shared_experts.output"),
    ),
    "the tower's output read before its final norm": (
        "llama4_text",
        "tiny-vision",
        move("llama4_text", "Llama4VisionModel", "tower_output", "norm.input"),
    ),
    "the patch embeddings read after the class row was added": (
        "llama4_text",
        "tiny-vision",
        move("llama4_text", "Llama4VisionModel", "patch_embeddings", "layernorm_pre.input"),
    ),
    "a tower's contribution read before its norm": (
        "gemma4_text",
        "tiny-vision",
        move("gemma4_text", "Gemma4VisionMLP", "mlp_output", "output"),
    ),
}


@contextmanager
def _fresh() -> Iterator[None]:
    """Forget twins that were built and measured before, and leave nothing of the mutated ones."""
    findings.forget()
    yield
    findings.forget()


def _target(family: str, name: str) -> Target:
    return next(target for target in targets(family) if target.id == name)


@pytest.mark.parametrize(("family", "name", "mutate"), MUTATIONS.values(), ids=MUTATIONS)
def test_a_mutated_probe_fails(family: str, name: str, mutate: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    with _fresh(), pytest.raises(ProbeError) as caught:
        probe_target(_target(family, name))
    assert caught.value.status != 0


@pytest.mark.parametrize(
    ("family", "name"),
    sorted({(family, name) for family, name, _ in MUTATIONS.values()} | {("gemma3_text", "tiny-vision")}),
)
def test_the_same_twin_unmutated_passes_and_every_value_is_pinned_by_an_identity(family: str, name: str) -> None:
    run = findings.measure(StandardizedTransformer(load(_target(family, name), attn="eager")))
    found = [identity for half in collect.all_identities(run) for identity in half]
    assert [identity.name for identity in found if not identity.holds] == []
    assert collect.unpinned(run) == set()
