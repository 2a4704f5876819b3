"""Scores, masks and positions: each quirk on a model that has it, and on one that differs in just that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from transformers.models.llama import modeling_llama

from probe.experiments import QUIRKS

Decide = Callable[..., Any]
RunOf = Callable[..., Any]

TWO = {"num_hidden_layers": 2}


def attentions(change: Callable[[Any], None]) -> Callable[[Any], None]:
    def every(module: Any) -> None:
        for block in module.model.layers:
            change(block.self_attn)

    return every


def with_keywords(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Any], None]:
    """Calls every attention with other keyword arguments."""

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, {**kwargs, **change(kwargs)}

    return attentions(lambda attention: attention.register_forward_pre_hook(hook, with_kwargs=True))


def test_unscaled_scores(run_of: RunOf, decide: Decide) -> None:
    assert decide("unscaled-scores", run_of("gemma4_text")).verdict == "yes"
    assert decide("unscaled-scores", run_of("gemma3_text")).verdict == "no"
    assert decide("unscaled-scores", run_of("gemma3_text", query_pre_attn_scalar=1)).blocks == [0, 1, 2, 3]


def test_softcapped_scores(run_of: RunOf, decide: Decide) -> None:
    found = decide("softcapped-scores", run_of("gemma3_text", change=with_keywords(lambda _: {"softcap": 2.5})))
    assert found.blocks == [0, 1, 2, 3] and found.measured["cap"] == pytest.approx(2.5)
    assert decide("softcapped-scores", run_of("gemma3_text")).verdict == "no"


def test_a_cap_that_the_config_names_and_the_forward_ignores(run_of: RunOf, decide: Decide) -> None:
    run = run_of("gemma3_text", attn_logit_softcapping=2.5)
    assert run.model.text_config.attn_logit_softcapping == 2.5
    assert decide("softcapped-scores", run).verdict == "no"


def test_alibi(run_of: RunOf, decide: Decide) -> None:
    def bias(kwargs: dict[str, Any]) -> dict[str, Any]:
        mask = kwargs["attention_mask"]
        place = torch.arange(mask.shape[-1])
        slopes = torch.tensor([0.5**h for h in range(1, 7)])[:, None, None]
        return {"attention_mask": mask - slopes * (place[:, None] - place[None]).abs()}

    found = decide("alibi", run_of("llama", change=with_keywords(bias)))
    assert found.blocks == [0, 1, 2] and found.measured["slopes"] == pytest.approx([-0.5, -(0.5**6)], rel=1e-2)
    assert decide("alibi", run_of("llama", **TWO)).verdict == "no"


def sinking_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    scaling: float,
    **_: Any,
) -> Any:
    key, value = (t.repeat_interleave(module.num_key_value_groups, 1) for t in (key, value))
    scores = query @ key.transpose(2, 3) * scaling + attention_mask
    scores = torch.cat([scores, torch.full_like(scores[..., :1], 0.5)], dim=-1)
    weights = nn.functional.softmax(scores, dim=-1)[..., :-1]
    weights = nn.functional.dropout(weights, p=0.0, training=False)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def scaling_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    scaling: float,
    **_: Any,
) -> Any:
    key, value = (t.repeat_interleave(module.num_key_value_groups, 1) for t in (key, value))
    scores = query @ key.transpose(2, 3) * scaling + attention_mask
    weights = nn.functional.softmax(scores, dim=-1)
    weights = nn.functional.dropout(weights, p=0.0, training=False)
    return (weights @ value * scores.logsumexp(-1, keepdim=True).sigmoid()).transpose(1, 2).contiguous(), weights


def test_sinks(run_of: RunOf, decide: Decide, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run_of("llama", **TWO)
    assert decide("attention-sink", whole).verdict == decide("sink-scaled-heads", whole).verdict == "no"
    monkeypatch.setattr(modeling_llama, "eager_attention_forward", sinking_attention)
    run = run_of("llama", change=lambda module: None)
    assert decide("attention-sink", run).blocks == [0, 1, 2]
    assert decide("sink-scaled-heads", run).verdict == "no"
    monkeypatch.setattr(modeling_llama, "eager_attention_forward", scaling_attention)
    run = run_of("llama", change=lambda module: None)
    assert decide("attention-sink", run).verdict == "no"
    assert decide("sink-scaled-heads", run).blocks == [0, 1, 2]


def test_output_gate_and_sub_norm(run_of: RunOf, decide: Decide) -> None:
    def gate(attention: Any) -> None:
        attention.o_proj.register_forward_pre_hook(
            lambda _, args: (args[0] * torch.linspace(0.1, 0.9, args[0].shape[-1]),)
        )

    def norm(attention: Any) -> None:
        attention.o_proj.register_forward_pre_hook(
            lambda _, args: (nn.functional.rms_norm(args[0], args[0].shape[-1:]),)
        )

    gated, normed, whole = (
        run_of("llama", change=attentions(gate)),
        run_of("llama", change=attentions(norm)),
        run_of("llama", **TWO),
    )
    assert decide("output-gate", gated).blocks == [0, 1, 2]
    assert decide("sub-norms", gated).verdict == "no"
    assert decide("output-gate", normed).verdict == "no"
    assert decide("sub-norms", normed).measured["in"] == ["attention"]
    assert decide("output-gate", whole).verdict == decide("sub-norms", whole).verdict == "no"


def test_sub_norm_in_the_mlp(run_of: RunOf, decide: Decide) -> None:
    def norm(module: Any) -> None:
        down = module.model.layers[1].mlp.down_proj
        down.register_forward_pre_hook(lambda _, args: (nn.functional.rms_norm(args[0], args[0].shape[-1:]),))

    found = decide("sub-norms", run_of("llama", change=norm))
    assert found.blocks == [1] and found.measured["in"] == ["MLP"]


def test_sliding_window(run_of: RunOf, decide: Decide) -> None:
    found = decide("sliding-window", run_of("gemma3_text"))
    assert (found.blocks, found.measured["window"], found.explained) == ([0, 2], 6, {"window": "sliding_window"})
    assert decide("sliding-window", run_of("gemma3_text", sliding_window=9)).measured["window"] == 9
    full = run_of("gemma3_text", layer_types=["full_attention"] * 4)
    assert decide("sliding-window", full).verdict == "no"
    assert decide("chunked-attention", run_of("gemma3_text")).verdict == "no"


def test_a_window_that_the_config_names_and_the_class_ignores(run_of: RunOf, decide: Decide) -> None:
    run = run_of("llama", sliding_window=6, **TWO)
    assert run.model.text_config.sliding_window == 6
    assert decide("sliding-window", run).verdict == "no"


def test_a_window_longer_than_any_prompt_that_is_run(run_of: RunOf, decide: Decide) -> None:
    assert decide("sliding-window", run_of("gemma3_text", sliding_window=5000)).verdict == "inconclusive"


def test_chunked_attention(run_of: RunOf, decide: Decide) -> None:
    found = decide("chunked-attention", run_of("llama4_text"))
    assert (found.blocks, found.measured["chunk"]) == ([0, 1, 2, 4, 5, 6], 8)
    assert decide("sliding-window", run_of("llama4_text")).verdict == "no"
    assert decide("chunked-attention", run_of("llama", **TWO)).verdict == "no"


def test_sparse_attention(run_of: RunOf, decide: Decide) -> None:
    def choose(kwargs: dict[str, Any]) -> dict[str, Any]:
        mask, hidden = kwargs["attention_mask"], kwargs["hidden_states"]
        if mask.shape[-1] != hidden.shape[1]:
            return {}
        dropped = (hidden[:, :, 0] < -0.5)[:, None, None] & ~torch.eye(mask.shape[-1], dtype=torch.bool)
        return {"attention_mask": mask.masked_fill(dropped, torch.finfo(mask.dtype).min)}

    assert decide("sparse-attention", run_of("llama", change=with_keywords(choose))).verdict == "yes"
    assert decide("sparse-attention", run_of("llama", **TWO)).verdict == "no"


def test_images_seen_both_ways(run_of: RunOf, decide: Decide) -> None:
    found = decide("bidirectional-images", run_of("gemma3_text", "tiny-vision"))
    assert found.blocks == [0, 1, 2, 3] and found.measured["needs"] == "token_type_ids"
    assert decide("bidirectional-images", run_of("gemma4_text", "tiny-vision")).verdict == "no"
    assert decide("bidirectional-images", run_of("gemma3_text")).verdict == "n/a"


def test_images_of_an_encoder_without_standard_names(run_of: RunOf, decide: Decide) -> None:
    def opened(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        seen = kwargs["attention_mask"].clone()
        if seen.shape[-1] == 34:  # the prompt with an image, whose tokens are 1 to 16
            seen[..., 1:17, 1:17] = 0
        return args, {**kwargs, "attention_mask": seen}

    def change(model: Any) -> None:
        for block in model.model.language_model.layers:
            block.self_attn.register_forward_pre_hook(opened, with_kwargs=True)

    found = decide("bidirectional-images", run_of("llava"))
    assert found.verdict == "no" and found.measured["image_tokens"] == 16
    assert decide("bidirectional-images", run_of("llava", change=change)).blocks == [0, 1, 2]


def test_nope_blocks(run_of: RunOf, decide: Decide) -> None:
    assert decide("nope-blocks", run_of("llama4_text")).blocks == [3, 7]
    assert decide("nope-blocks", run_of("llama4_text", no_rope_layers=[1] * 8)).verdict == "no"


def turning(pairs: int) -> Callable[[Any], None]:
    """Leaves all but the first pairs where they are."""

    def hook(_: nn.Module, __: Any, out: Any) -> Any:
        if isinstance(out, torch.Tensor):
            return torch.cat([out[..., :pairs], torch.ones_like(out[..., pairs:])], dim=-1)
        cos, sin = out
        still = torch.arange(cos.shape[-1]) % (cos.shape[-1] // 2) >= pairs
        return cos.masked_fill(still, 1.0), sin.masked_fill(still, 0.0)

    return lambda module: module.model.rotary_emb.register_forward_hook(hook)


def test_partial_rotary(run_of: RunOf, decide: Decide) -> None:
    run = run_of("llama4_text", change=turning(2))
    found = decide("partial-rotary", run)
    assert found.blocks == [0, 1, 2, 4, 5, 6] and found.measured["share"] == 0.5
    assert decide("proportional-rotary", run).verdict == "no"
    assert decide("partial-rotary", run_of("llama4_text")).verdict == "no"


def test_a_part_that_the_config_counts_in_dimensions(run_of: RunOf, decide: Decide) -> None:
    """GPT-J's config says how many dimensions turn, which a published checkpoint's page then says too."""
    found = decide("partial-rotary", run_of("gptj"))
    assert (found.measured["turning"], found.explained) == (4, {"turning": "rotary_dim"})
    (quirk,) = (quirk for quirk in QUIRKS if quirk.slug == "partial-rotary")
    assert quirk.say({"turning": 64}, [0, 1], 2) == (
        "On every block only the first 64 dimensions of a head turn with the position."
    )


def test_partial_rotary_that_the_config_names_and_the_class_ignores(run_of: RunOf, decide: Decide) -> None:
    run = run_of("llama", "tiny-mha", partial_rotary_factor=0.5)
    assert decide("partial-rotary", run).verdict == decide("proportional-rotary", run).verdict == "no"


def test_proportional_rotary(run_of: RunOf, decide: Decide) -> None:
    found = decide("proportional-rotary", run_of("gemma4_text"))
    assert found.blocks == [1, 3, 5, 7] and found.measured["share"] == 0.25
    assert set(found.explained) == {"share", "base"}
    assert decide("partial-rotary", run_of("gemma4_text")).verdict == "no"
    assert decide("proportional-rotary", run_of("llama", "tiny-mha")).verdict == "no"
    assert decide("proportional-rotary", run_of("llama", "tiny-mha", change=turning(2))).blocks == [0, 1, 2]


def test_interleaved_rotary(run_of: RunOf, decide: Decide) -> None:
    assert decide("interleaved-rotary", run_of("llama4_text")).blocks == [0, 1, 2, 4, 5, 6]
    assert decide("interleaved-rotary", run_of("llama", **TWO)).verdict == "no"


def test_rotary_bases_and_rescaling(run_of: RunOf, decide: Decide) -> None:
    found = decide("rotary-bases", run_of("gemma3_text"))
    assert found.verdict == "yes" and sorted(found.measured.values()) == [10000, 1000000]
    assert decide("rotary-bases", run_of("llama", "tiny-mha")).verdict == "no"
    found = decide("rescaled-rotary", run_of("llama", **TWO))
    assert found.blocks == [0, 1] and found.explained == {"slowed_at_most": "rope_parameters.factor"}
    assert decide("rescaled-rotary", run_of("llama", "tiny-mha")).verdict == "no"


def test_attention_temperature(run_of: RunOf, decide: Decide) -> None:
    found = decide("attention-temperature", run_of("llama4_text"))
    assert found.blocks == [3, 7] and found.explained == {"step": "floor_scale", "scale": "attn_scale"}
    assert found.measured["counted"] == "(position + 1)"
    assert decide("attention-temperature", run_of("llama4_text", attn_temperature_tuning=False)).verdict == "no"
    assert decide("attention-temperature", run_of("llama", **TWO)).verdict == "no"


def test_position_embeddings(run_of: RunOf, decide: Decide) -> None:
    def add(module: Any) -> None:
        table = torch.randn(64, 48, generator=torch.Generator().manual_seed(0))
        module.model.layers[0].register_forward_pre_hook(
            lambda _, args: (args[0] + table[: args[0].shape[1]], *args[1:])
        )

    assert decide("position-embeddings", run_of("llama", change=add)).verdict == "yes"
    assert decide("position-embeddings", run_of("llama", **TWO)).verdict == "no"


def masked_by(number: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], None]:
    """Adds to every attention's mask what is made of the place of its keys, relative to its queries' in a square."""

    def bias(kwargs: dict[str, Any]) -> dict[str, Any]:
        mask = kwargs["attention_mask"]
        heads = torch.tensor([0.5**h for h in range(1, 7)])[:, None, None]
        return {"attention_mask": mask + heads * number(torch.arange(mask.shape[-1]).float())}

    return with_keywords(bias)


BIASES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "alibi": lambda place: place[None] - place[:, None],
    "relative-bias": lambda place: (place[:, None] - place[None]).clamp_min(0).sqrt(),
    "key-bias": lambda place: (place * 7).sin()[None].expand(len(place), -1),
    "content-bias": lambda place: (place[:, None] * place[None]).sin(),
}


@pytest.mark.parametrize("slug", BIASES)
def test_what_is_added_to_the_scores(slug: str, run_of: RunOf, decide: Decide) -> None:
    run = run_of("llama", change=masked_by(BIASES[slug]))
    assert [other for other in BIASES if decide(other, run).verdict == "yes"] == [slug]
    assert decide(slug, run_of("llama", **TWO)).verdict == "no"


def test_a_gate_behind_a_norm_and_heads_turned(run_of: RunOf, decide: Decide) -> None:
    def turn(attention: Any) -> None:
        attention.o_proj.register_forward_pre_hook(
            lambda _, args: (args[0].unflatten(-1, (6, -1)).flip(-1).flatten(-2),)
        )

    def gate_and_norm(attention: Any) -> None:
        given: list[torch.Tensor] = []
        attention.gate = nn.Linear(48, 48, bias=False)
        attention.register_forward_pre_hook(
            lambda _, __, kwargs: given.append(kwargs["hidden_states"]), with_kwargs=True
        )

        def change(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            gated = args[0] * attention.gate(given.pop()).sigmoid()
            return (nn.functional.rms_norm(gated, gated.shape[-1:]),)

        attention.o_proj.register_forward_pre_hook(change)

    turned, both = run_of("llama", change=attentions(turn)), run_of("llama", change=attentions(gate_and_norm))
    assert decide("turned-heads", turned).blocks == [0, 1, 2]
    assert decide("output-gate", turned).verdict == "no"
    assert decide("output-gate", both).blocks == decide("sub-norms", both).blocks == [0, 1, 2]
    assert decide("turned-heads", both).verdict == decide("turned-heads", run_of("llama", **TWO)).verdict == "no"


def test_norms_without_weights(run_of: RunOf, decide: Decide) -> None:
    def plain(module: Any) -> None:
        for block in module.model.layers:
            block.input_layernorm = nn.RMSNorm(48, elementwise_affine=False)
            block.post_attention_layernorm = nn.RMSNorm(48, elementwise_affine=False)

    run = run_of("llama", change=plain)
    assert decide("weightless-norms", run).blocks == [0, 1, 2] and decide("gain-norm", run).verdict == "n/a"
    assert decide("weightless-norms", run_of("llama", **TWO)).verdict == "no"


def test_caches(run_of: RunOf, decide: Decide) -> None:
    def drop(module: Any) -> None:
        def hook(_: nn.Module, __: Any, out: Any) -> Any:
            out.cache = None
            return out

        module.model.register_forward_hook(hook)

    def keep_inside(module: Any) -> None:
        drop(module)
        for block in module.model.layers:
            block.self_attn.register_forward_hook(lambda attention, _, out: setattr(attention, "kept", out[0]))

    whole, dropped, kept = run_of("llama", **TWO), run_of("llama", change=drop), run_of("llama", change=keep_inside)
    assert [decide("no-cache", run).verdict for run in (whole, dropped, kept)] == ["no", "yes", "no"]
    assert [decide("cache-in-modules", run).verdict for run in (whole, dropped, kept)] == ["no", "no", "yes"]
    assert decide("cached-otherwise", whole).verdict == "no"
    assert decide("cached-otherwise", run_of("jetmoe")).verdict == "no"  # each of its keys is several heads'


def test_blocks_that_a_call_shortens(run_of: RunOf, decide: Decide) -> None:
    assert decide("shortened-blocks", run_of("gemma4_text")).blocks == [4, 5, 6, 7]
    assert decide("shortened-blocks", run_of("gemma4_text", "tiny-dense")).verdict == "no"
