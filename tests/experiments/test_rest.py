"""Norms, mixtures, activations, embeddings, the readout and facts."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from transformers import activations

from probe.experiments import QUIRKS, some
from probe.experiments.facts import facts
from probe.instruments.shared import Shared

Decide = Callable[..., Any]
RunOf = Callable[..., Any]

TWO = {"num_hidden_layers": 2}
MIXTURE = {"enable_moe_block": True, "num_experts": 8, "top_k_experts": 3, "moe_intermediate_size": 20}


class OnePlus(nn.Module):
    """A norm whose gain is one plus its weight."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight - 1, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x, x.shape[-1:]) * (1 + self.weight)


def norms(make: Callable[[Any], nn.Module]) -> Callable[[Any], None]:
    def change(module: Any) -> None:
        for block in module.model.layers:
            for name in ("input_layernorm", "post_attention_layernorm"):
                setattr(block, name, make(getattr(block, name)))

    return change


def test_layernorm(run_of: RunOf, decide: Decide) -> None:
    found = decide(
        "layernorm", run_of("llama", change=norms(lambda norm: nn.LayerNorm(len(norm.weight)).requires_grad_(False)))
    )
    assert found.blocks == [0, 1, 2]
    assert decide("layernorm", run_of("llama", **TWO)).verdict == "no"


def test_gain_norm(run_of: RunOf, decide: Decide) -> None:
    assert decide("gain-norm", run_of("gemma3_text")).blocks == [0, 1, 2, 3]
    assert decide("gain-norm", run_of("llama", **TWO)).verdict == "no"
    assert decide("gain-norm", run_of("llama", change=norms(lambda norm: OnePlus(norm.weight)))).blocks == [0, 1, 2]


def test_mixture_of_experts(run_of: RunOf, decide: Decide) -> None:
    found = decide("mixture-of-experts", run_of("gemma4_text", **MIXTURE))
    assert found.measured == {"experts": 8, "chosen": 3} and set(found.explained) == {"experts", "chosen"}
    assert decide("mixture-of-experts", run_of("gemma4_text")).verdict == "no"


def test_interleaved_and_dense_first(run_of: RunOf, decide: Decide) -> None:
    every, second, later = (
        run_of("llama4_text", moe_layers=places) for places in (list(range(8)), [1, 3, 5, 7], list(range(2, 8)))
    )
    found = decide("interleaved-moe", second)
    assert found.blocks == [1, 3, 5, 7] and found.measured == {"step": 2}
    assert [decide("interleaved-moe", run).verdict for run in (every, later)] == ["no", "no"]
    assert decide("dense-first-blocks", later).measured == {"dense": 2}
    assert [decide("dense-first-blocks", run).verdict for run in (every, second)] == ["no", "no"]
    assert decide("interleaved-moe", run_of("llama", **TWO)).verdict == "n/a"


def test_a_shared_expert_that_gives_nothing(run_of: RunOf, decide: Decide) -> None:
    def silence(module: Any) -> None:
        for block in module.model.layers:
            block.feed_forward.shared_expert.down_proj.weight.zero_()

    assert len(decide("shared-expert", run_of("llama4_text")).blocks) == 8
    assert decide("shared-expert", run_of("llama4_text", change=silence)).verdict == "no"


def test_unnormalized_routing(run_of: RunOf, decide: Decide) -> None:
    def level(module: Any) -> None:
        for block in module.model.layers:
            block.router.per_expert_scale.fill_(0.7)

    assert decide("unnormalized-routing", run_of("gemma4_text", **MIXTURE)).verdict == "yes"
    found = decide("unnormalized-routing", run_of("gemma4_text", change=level, **MIXTURE))
    assert found.verdict == "no" and found.measured == {"least_sum": 0.7, "largest_sum": 0.7}


def test_unnormalized_routing_read_off_the_inputs_of_experts(run_of: RunOf, decide: Decide) -> None:
    def always(module: Any) -> None:
        for block in module.model.layers:
            block.feed_forward.router.register_forward_hook(lambda _, __, out: ((out[0] > 0).to(out[0]), *out[1:]))

    assert decide("unnormalized-routing", run_of("llama4_text")).verdict == "yes"
    found = decide("unnormalized-routing", run_of("llama4_text", change=always))
    assert found.verdict == "no" and found.measured == {"least_sum": 1.0, "largest_sum": 1.0}


def test_hash_routing(run_of: RunOf, decide: Decide) -> None:
    def by_id(module: Any) -> None:
        table, ids = torch.randn(320, 48, generator=torch.Generator().manual_seed(0)), {}
        module.model.embed_tokens.register_forward_pre_hook(lambda _, args: ids.update(now=args[0]))
        for block in module.model.layers:
            block.feed_forward.router.register_forward_pre_hook(lambda _, __: (table[ids["now"].flatten()],))

    assert len(decide("hash-routing", run_of("llama4_text", change=by_id)).blocks) == 8
    assert decide("hash-routing", run_of("llama4_text")).verdict == "no"


def test_squared_relu(run_of: RunOf, decide: Decide) -> None:
    assert decide("squared-relu", run_of("llama", hidden_act="relu2", **TWO)).blocks == [0, 1]
    assert decide("squared-relu", run_of("zaya")).measured == {"function": "silu"}  # its router's GELU is no neuron's
    found = decide("squared-relu", run_of("llama", **TWO))
    assert found.verdict == "no" and found.measured == {"function": "silu"}


def test_squared_relu_beside_an_activation_that_is_not_called(wired: RunOf, decide: Decide) -> None:
    def with_mlp(function: Callable[[torch.Tensor], torch.Tensor], act_fn: nn.Module) -> Callable[[Any], None]:
        def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
            return self.down_proj(function(self.up_proj(x)))

        def change(module: Any) -> None:
            for block in module.model.layers:
                block.mlp.act_fn, block.mlp.forward = act_fn, types.MethodType(forward, block.mlp)

        return change

    squared = wired("llama", with_mlp(lambda x: torch.relu(x) ** 2, nn.SiLU()))
    assert decide("squared-relu", squared).blocks == [0, 1, 2]
    idle = wired("llama", with_mlp(nn.functional.silu, activations.ReLUSquaredActivation()))
    assert decide("squared-relu", idle).verdict == "no"
    assert decide("squared-relu", idle).measured == {"function": "silu"}


class Idle(nn.SiLU):
    """An activation with a parameter that it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1), requires_grad=False)


@pytest.mark.parametrize(("make", "verdict"), [(lambda: nn.PReLU().requires_grad_(False), "yes"), (Idle, "no")])
def test_learned_activation(run_of: RunOf, decide: Decide, make: Callable[[], nn.Module], verdict: str) -> None:
    def change(module: Any) -> None:
        for block in module.model.layers:
            block.mlp.act_fn = make()

    assert decide("learned-activation", run_of("llama", change=change)).verdict == verdict


class Rounded(nn.Linear):
    """A linear layer that rounds its weight, or its input, in the forward."""

    rounds = "weight"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = (self.weight * 8).round() / 8 if self.rounds == "weight" else self.weight
        return nn.functional.linear((x * 8).round() / 8 if self.rounds == "input" else x, weight)


@pytest.mark.parametrize("rounds", ["weight", "input"])
def test_quantized_linears(run_of: RunOf, decide: Decide, rounds: str) -> None:
    def change(module: Any) -> None:
        plain = module.model.layers[1].mlp.up_proj
        made = Rounded(plain.in_features, plain.out_features, bias=False).requires_grad_(False)
        made.weight, made.rounds = plain.weight, rounds
        module.model.layers[1].mlp.up_proj = made

    assert decide("quantized-linears", run_of("llama", change=change)).blocks == [1]
    assert decide("quantized-linears", run_of("llama", **TWO)).verdict == "no"


def test_scaled_embeddings(run_of: RunOf, decide: Decide) -> None:
    found = decide("scaled-embeddings", run_of("gemma3_text"))
    assert found.explained == {"factor_squared": "hidden_size"}
    assert decide("scaled-embeddings", run_of("llama", **TWO)).verdict == "no"
    found = decide("scaled-embeddings", run_of("minicpm3"))
    assert (found.measured, found.explained) == ({"factor": 12.0}, {"factor": "scale_emb"})
    quirk = next(quirk for quirk in QUIRKS if quirk.slug == "scaled-embeddings" and quirk.about == "text")
    said = str(quirk.record(found, 3).statement)
    assert "by 12 before" in said and "root" not in said

    def triple(module: Any) -> None:
        table = module.model.embed_tokens
        table.forward = lambda ids: nn.functional.embedding(ids, table.weight) * 3

    run = run_of("llama", change=triple)
    found = decide("scaled-embeddings", run)
    assert (found.verdict, found.measured, found.explained) == ("yes", {"factor": 3.0}, {})
    assert decide("embedding-multiplier", run).verdict == "no"


def test_embedding_multiplier(run_of: RunOf, decide: Decide) -> None:
    def triple(module: Any) -> None:
        module.model.layers[0].register_forward_pre_hook(lambda _, args: (args[0] * 3, *args[1:]))

    run = run_of("llama", change=triple)
    assert decide("embedding-multiplier", run).measured == {"factor": 3.0}
    assert decide("scaled-embeddings", run).verdict == decide("position-embeddings", run).verdict == "no"
    assert decide("embedding-multiplier", run_of("gemma3_text")).verdict == "no"


def test_softcapped_and_scaled_logits(run_of: RunOf, decide: Decide) -> None:
    found = decide("softcapped-logits", run_of("gemma4_text"))
    assert (found.measured["cap"], found.explained) == (30.0, {"cap": "final_logit_softcapping"})
    bare = run_of("gemma4_text", final_logit_softcapping=None)
    assert decide("softcapped-logits", bare).verdict == decide("scaled-logits", bare).verdict == "no"
    assert decide("scaled-logits", run_of("gemma4_text")).verdict == "no"

    def halve(module: Any) -> None:
        plain = module.forward

        def forward(**inputs: Any) -> Any:
            out = plain(**inputs)
            out.logits = out.logits / 2
            return out

        module.forward = forward

    halved = run_of("llama", change=halve)
    assert decide("scaled-logits", halved).measured == {"factor": 0.5}
    assert decide("softcapped-logits", halved).verdict == "no"


def test_per_layer_embeddings(run_of: RunOf, decide: Decide) -> None:
    found = decide("per-layer-embeddings", run_of("gemma4_text"))
    assert len(found.blocks) == 8 and found.explained == {"width": "hidden_size_per_layer_input"}
    assert (
        decide(
            "per-layer-embeddings", run_of("gemma4_text", hidden_size_per_layer_input=0, num_kv_shared_layers=0)
        ).verdict
        == "no"
    )


def test_fp32_residual(run_of: RunOf, decide: Decide) -> None:
    def keep(module: Any) -> None:
        def half(part: nn.Module, args: Any, kwargs: Any) -> Any:
            dtype = next(part.parameters()).dtype
            cast = [arg.to(dtype) for arg in args]
            return tuple(cast), {k: v.to(dtype) if k == "hidden_states" else v for k, v in kwargs.items()}

        for block in module.model.layers:
            block.register_forward_pre_hook(lambda _, args: (args[0].float(), *args[1:]))
            block.self_attn.register_forward_pre_hook(half, with_kwargs=True)
            block.mlp.register_forward_pre_hook(half, with_kwargs=True)

    assert decide("fp32-residual", run_of("llama", change=keep)).blocks == [0, 1, 2]
    assert decide("fp32-residual", run_of("llama", **TWO)).verdict == "no"
    assert decide("fp32-residual", run_of("gemma4_text", **MIXTURE)).verdict == "no"


def test_facts(run_of: RunOf) -> None:
    found = {fact.name: fact for fact in facts(run_of("gemma4_text"))}
    own = 4 * 2 * 4  # float32 keys and values on four blocks that own theirs
    assert found["kv_cache_bytes_per_token"].value == own * (8 + 16 + 8 + 16) // 4
    assert "blocks 4 to 7 store nothing" in found["kv_cache_bytes_per_token"].statement
    assert found["kv_cache_bytes_per_token"].measured == {"dtype": "float32", "empty_blocks": [4, 5, 6, 7]}
    past = found["kv_cache_bytes_per_token_past_window"]
    assert past.value == 2 * 4 * (16 + 16) and past.measured == {"blocks": [0, 2], "positions": [5]}
    assert "blocks 0 and 2 hold 5 positions" in past.statement
    assert found["score_scale"].value == 1.0 and "one_over_root_of" not in found["score_scale"].measured
    assert found["hidden_states"].value == 9 and found["hidden_states_of_blocks"].value == 7
    assert found["last_hidden_state_is_normed"].value is True
    assert 0 < found["eager_sdpa"].value < 1e-3 < found["eager_sdpa_padding"].value
    assert found["eager_sdpa_padded"].value < 1e-3
    assert found["parameters"].value == sum(p.numel() for p in run_of("gemma4_text").model._module.parameters())


def test_facts_of_a_last_hidden_state_without_the_norm(run_of: RunOf) -> None:
    def bare(module: Any) -> None:
        module.model.norm.forward = lambda x: x.clone()

    found = {fact.name: fact for fact in facts(run_of("llama", change=bare))}
    assert found["last_hidden_state_is_normed"].value is False
    assert "No norm stands before the head" in found["last_hidden_state_is_normed"].statement
    assert found["hidden_states_of_blocks"].value == 3
    assert "kv_cache_bytes_per_token_past_window" not in found


def test_every_sentence_can_be_said_without_numbers() -> None:
    from probe.experiments import QUIRKS

    for quirk in QUIRKS:
        if quirk.about == "text":
            for where, total in (([0], 4), ([0, 1, 2, 3], 4), ([1, 3], 4)):
                said = quirk.say({}, where, total)
                assert said.endswith(".") and "None" not in said and "  " not in said, (quirk.slug, said)


def test_slugs_are_unique() -> None:
    from probe.experiments import QUIRKS

    text = [quirk.slug for quirk in QUIRKS if quirk.about == "text"]
    assert len(text) == len(set(text))


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ([*range(60)], "every block"),
        ([3], "block 3"),
        ([0, 1, 2, 5], "blocks 0 to 2 and 5"),
        ([*range(0, 50, 2)], "25 of 60 blocks (every second from 0 to 48)"),
        ([*range(3, 60, 4)], "15 of 60 blocks (every fourth from 3 to 59)"),
        ([i for i in range(60) if i % 4 != 3], "45 of 60 blocks (all but every fourth from 3 to 59)"),
        ([i for i in range(60) if i % 7 != 3], "51 of 60 blocks (all but every seventh from 3 to 59)"),
        (
            [i for i in range(60) if i not in (4, 5, 6, 9, 11, 20, 22, 24, 26, 28)],
            "50 of 60 blocks (all but 4 to 6, 9, 11, 20, 22, 24, 26 and 28)",
        ),
        (
            [0, 2, 4, 7, 9, 11, 13, 15, 16, 17, 20, 50],
            "12 of 60 blocks (0, 2, 4, 7, 9, 11, 13, 15 to 17, 20 and 50)",
        ),
    ],
)
def test_blocks_in_words_name_every_one(blocks: list[int], words: str) -> None:
    assert some(blocks, 60) == words


def test_who_fails_in_a_shared_forward_leaves_the_others_their_answers() -> None:
    taken: list[int] = []

    def forward(_: Any, parts: Sequence[int]) -> list[float]:
        taken.append(len(parts))
        return [1 / part for part in parts]

    shared: Shared[int] = Shared(forward)
    half, failing, fourth = (shared.join(part) for part in (2, 0, 4))
    run: Any = types.SimpleNamespace()
    assert (half(run), fourth(run), half(run)) == (0.5, 0.25, 0.5)
    with pytest.raises(ZeroDivisionError):
        failing(run)
    assert taken == [3, 1, 1, 1], "all together first, then each who is asked for alone, once"
