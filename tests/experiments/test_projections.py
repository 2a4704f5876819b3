"""Projections, heads and sizes: each quirk on a model that has it, and on one that differs in just that."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from probe.experiments.registry import QUIRKS
from probe.values.hosts import Attention

Decide = Callable[..., Any]
RunOf = Callable[..., Any]

BORROWED = next(quirk for quirk in QUIRKS if quirk.slug == "borrowed-kv")

TWO = {"num_hidden_layers": 2}


class Same(nn.Module):
    """Gives a copy of what it gets."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clone()


class Projection(nn.Module):
    """A projection made of others; ``linear`` says how wide it is, as a wrapped linear layer would."""

    def __init__(self, width: int, *inner: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*inner)
        self.linear = types.SimpleNamespace(out_features=width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)[..., : self.linear.out_features]


class Part(Projection):
    """A part of what another projection returns."""

    def __init__(self, width: int, whole: nn.Module, start: int) -> None:
        super().__init__(width, whole)
        self.start = start

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)[..., self.start : self.start + self.linear.out_features]


def attentions(change: Callable[[Any], None]) -> Callable[[Any], None]:
    def every(module: Any) -> None:
        for block in module.model.layers:
            change(block.self_attn)

    return every


def linear(rows: int, columns: int) -> nn.Linear:
    made = nn.Linear(columns, rows, bias=False)
    made.weight.requires_grad_(False)
    made.weight.copy_(torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows)) / columns**0.5)
    return made


def test_qk_norm(run_of: RunOf, decide: Decide) -> None:
    found = decide("qk-norm", run_of("gemma3_text"))
    assert found.blocks == [0, 1, 2, 3] and found.measured["keys_normed"] == 4
    assert decide("qk-norm", run_of("llama", **TWO)).verdict == "no"


def test_qk_norm_where_only_the_name_is_left(run_of: RunOf, decide: Decide) -> None:
    def bare(attention: Any) -> None:
        attention.q_norm = attention.k_norm = Same()

    assert decide("qk-norm", run_of("gemma3_text", change=attentions(bare))).verdict == "no"


def test_qk_norm_on_some_blocks(run_of: RunOf, decide: Decide) -> None:
    assert decide("qk-norm", run_of("llama4_text")).blocks == [0, 1, 2, 4, 5, 6]
    assert decide("qk-norm", run_of("llama4_text", use_qk_norm=False)).verdict == "no"


def test_value_norm(run_of: RunOf, decide: Decide) -> None:
    assert decide("value-norm", run_of("gemma4_text")).blocks == [0, 1, 2, 3]
    assert decide("value-norm", run_of("gemma3_text")).verdict == "no"


def test_values_from_keys(run_of: RunOf, decide: Decide) -> None:
    shared = run_of("gemma4_text", attention_k_eq_v=True, num_global_key_value_heads=1, num_kv_shared_layers=0)
    assert decide("values-from-keys", shared).blocks == [1, 3, 5, 7]
    assert decide("values-from-keys", run_of("gemma4_text")).verdict == "no"


def test_borrowed_kv(run_of: RunOf, decide: Decide) -> None:
    found = decide("borrowed-kv", run_of("gemma4_text"))
    assert found.blocks == [4, 5, 6, 7]
    assert found.measured == {
        "borrowers": 4,
        "lenders": [2, 3],
        "last_of_its_kind": True,
        "edit_of_keys_and_values_reaches": False,
    }
    assert BORROWED.say(found.measured, found.blocks, 8).endswith(
        "An edit of what the lender's key and value projections return reaches every borrower; one of the lender's "
        "`attention_keys` or `attention_values` reaches none."
    )
    assert found.explained == {"borrowers": "num_kv_shared_layers"}
    assert decide("borrowed-kv", run_of("gemma4_text", num_kv_shared_layers=0)).verdict == "no"


def test_an_edit_in_place_of_keys_that_are_no_copies_reaches_the_borrowers(
    run_of: RunOf, decide: Decide, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in (Attention.attention_keys, Attention.attention_values):
        monkeypatch.setattr(value, "copy", False)
    found = decide("borrowed-kv", run_of("gemma4_text"))
    assert found.measured["edit_of_keys_and_values_reaches"] is True
    assert "and so does one of the lender's `attention_keys`" in BORROWED.say(found.measured, found.blocks, 8)


def test_equal_keys_are_not_borrowed_ones(run_of: RunOf, decide: Decide) -> None:
    def twins(module: Any) -> None:
        one, two = (block.self_attn for block in module.model.layers[:2])
        two.k_proj, two.v_proj = one.k_proj, one.v_proj

    assert decide("borrowed-kv", run_of("llama", change=twins)).verdict == "no"


def test_fused_qkv(run_of: RunOf, decide: Decide) -> None:
    def fuse(attention: Any) -> None:
        names = ("q_proj", "k_proj", "v_proj")
        widths = [getattr(attention, name).out_features for name in names]
        whole = linear(sum(widths), attention.q_proj.in_features)
        for name, width, start in zip(names, widths, (0, widths[0], sum(widths[:2])), strict=True):
            setattr(attention, name, Part(width, whole, start))

    assert decide("fused-qkv", run_of("llama", change=attentions(fuse))).blocks == [0, 1, 2]
    assert decide("fused-qkv", run_of("llama", **TWO)).verdict == "no"


def test_qkv_bias(run_of: RunOf, decide: Decide) -> None:
    assert decide("qkv-bias", run_of("llama", attention_bias=True, **TWO)).blocks == [0, 1]
    assert decide("qkv-bias", run_of("llama", **TWO)).verdict == "no"


def test_qkv_bias_that_is_zero(run_of: RunOf, decide: Decide) -> None:
    def zero(attention: Any) -> None:
        for name in ("q_proj", "k_proj", "v_proj"):
            getattr(attention, name).bias.data.zero_()

    assert decide("qkv-bias", run_of("llama", change=attentions(zero), attention_bias=True, **TWO)).verdict == "no"


def test_conv_qk(run_of: RunOf, decide: Decide) -> None:
    def convolve(attention: Any) -> None:
        attention.q_proj.register_forward_hook(lambda _, __, out: out + 0.5 * out.roll(1, dims=1))

    found = decide("conv-qk", run_of("llama", change=attentions(convolve)))
    assert found.blocks == [0, 1, 2] and found.measured["farthest_later_position_moved"] == 1
    assert decide("conv-qk", run_of("llama", **TWO)).verdict == "no"


def test_gated_query(run_of: RunOf, decide: Decide) -> None:
    def widen(attention: Any) -> None:
        width, columns = attention.q_proj.out_features, attention.q_proj.in_features
        attention.q_proj = Projection(width, linear(2 * width, columns))

    assert decide("gated-query", run_of("llama", change=attentions(widen))).measured["width_over_queries"] == [2.0]
    assert decide("gated-query", run_of("llama", **TWO)).verdict == "no"


def test_attention_experts(run_of: RunOf, decide: Decide) -> None:
    def route(attention: Any) -> None:
        attention.o_proj.register_forward_pre_hook(
            lambda _, args: (args[0] * (args[0] >= args[0].topk(24, -1)[0][..., -1:]),)
        )

    assert decide("attention-experts", run_of("llama", change=attentions(route))).blocks == [0, 1, 2]
    assert decide("attention-experts", run_of("llama4_text")).verdict == "no"


def test_own_attention_arithmetic(run_of: RunOf, wired: RunOf, decide: Decide) -> None:
    def own(self: Any, hidden_states: torch.Tensor, **kwargs: Any) -> tuple[torch.Tensor, None]:
        size = (*hidden_states.shape[:2], -1, self.head_dim)
        q, k, v = (
            getattr(self, name)(hidden_states).view(size).transpose(1, 2) for name in ("q_proj", "k_proj", "v_proj")
        )
        k, v = (t.repeat_interleave(self.num_key_value_groups, 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) * self.scaling + kwargs["attention_mask"]
        return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)), None

    def change(attention: Any) -> None:
        attention.forward = types.MethodType(own, attention)

    run = wired("llama", attentions(change))
    assert decide("own-attention-arithmetic", run).blocks == [0, 1, 2]
    assert decide("qk-norm", run).verdict == decide("fused-qkv", run).verdict == "no"
    assert decide("own-attention-arithmetic", run_of("llama", **TWO)).verdict == "no"


@pytest.mark.parametrize(
    ("slug", "has", "has_not"),
    [
        ("grouped-query", {"num_key_value_heads": 2}, {"num_key_value_heads": 1}),
        ("grouped-query", {"num_key_value_heads": 3}, {"num_key_value_heads": 6}),
        ("multi-query", {"num_key_value_heads": 1}, {"num_key_value_heads": 2}),
    ],
)
def test_shared_heads(run_of: RunOf, decide: Decide, slug: str, has: dict[str, int], has_not: dict[str, int]) -> None:
    found = decide(slug, run_of("llama", **TWO, **has))
    assert found.blocks == [0, 1] and found.explained["num_kv_heads"] == "num_key_value_heads"
    assert decide(slug, run_of("llama", **TWO, **has_not)).verdict == "no"


def test_shapes_alone_decide_the_same(run_of: RunOf) -> None:
    from probe.experiments import QUIRKS

    for run in (run_of("gemma4_text"), run_of("llama", **TWO), run_of("llama", "tiny-tied"), run_of("gemma3_text")):
        for quirk in QUIRKS:
            if quirk.about == "text" and quirk.built is not None:
                built, ran = quirk.built(run.model), quirk.run(run)
                assert (built.verdict, built.blocks) == (ran.verdict, ran.blocks), quirk.slug


def test_per_block_sizes(run_of: RunOf, decide: Decide) -> None:
    found = decide("per-block-sizes", run_of("gemma4_text"))
    assert found.measured["head_dim"] == [8, 16] and found.measured["intermediate_size"] == [56, 112]
    assert decide("per-block-sizes", run_of("llama", **TWO)).verdict == "no"


def test_tied_weights(run_of: RunOf, decide: Decide) -> None:
    assert decide("tied-weights", run_of("llama", "tiny-tied")).verdict == "yes"
    assert decide("tied-weights", run_of("llama", **TWO)).verdict == "no"


def test_weights_that_are_equal_but_apart(run_of: RunOf, decide: Decide) -> None:
    def untie(module: Any) -> None:
        module.lm_head.weight = nn.Parameter(module.lm_head.weight.clone(), requires_grad=False)

    run = run_of("llama", "tiny-tied", change=untie)
    assert run.model.text_config.tie_word_embeddings
    found = decide("tied-weights", run)
    assert found.verdict == "no" and found.measured == {"equal": True}
