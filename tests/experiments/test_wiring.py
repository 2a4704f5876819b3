"""Wiring: each quirk on a model that has it, and on one that differs in just that."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from probe.checkpoints import digest
from probe.experiments.stream.wiring import QUIRKS
from probe.standard.trace import Key

Decide = Callable[..., Any]
RunOf = Callable[..., Any]

TWO = {"num_hidden_layers": 2}


class Same(nn.Module):
    """Gives a copy of what it gets."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clone()


def without(*names: str) -> Callable[[Any], None]:
    """Takes norms out of every block."""

    def change(module: Any) -> None:
        for block in module.model.layers:
            for name in names:
                setattr(block, name, Same())

    return change


def with_forward(forward: Callable[..., Any]) -> Callable[[Any], None]:
    """Gives every block another forward."""

    def change(module: Any) -> None:
        for block in module.model.layers:
            block.forward = types.MethodType(forward, block)

    return change


def test_sandwich_norms(run_of: RunOf, decide: Decide) -> None:
    assert decide("sandwich-norms", run_of("gemma3_text")).blocks == [0, 1, 2, 3]
    assert decide("sandwich-norms", run_of("llama", **TWO)).verdict == "no"


def test_a_block_that_keeps_the_names_of_norms_it_has_not_is_no_sandwich(run_of: RunOf, decide: Decide) -> None:
    bare = run_of("gemma3_text", change=without("post_attention_layernorm", "post_feedforward_layernorm"))
    assert decide("sandwich-norms", bare).verdict == "no"
    post = run_of("gemma3_text", change=without("input_layernorm", "pre_feedforward_layernorm"))
    assert decide("sandwich-norms", post).verdict == "no"
    assert decide("post-norms", post).blocks == [0, 1, 2, 3]
    assert decide("post-norms", run_of("gemma3_text")).verdict == "no"


def test_post_ln(run_of: RunOf, underived: RunOf, decide: Decide) -> None:
    def change(module: Any) -> None:
        for block in module.model.layers:
            block.register_forward_hook(lambda _, __, out: nn.functional.rms_norm(out, out.shape[-1:]))

    assert decide("post-ln", underived("llama", change)).verdict == "yes"
    assert decide("post-ln", run_of("llama", **TWO)).verdict == "no"


def test_scaled_residual_adds(run_of: RunOf, decide: Decide) -> None:
    found = decide("scaled-residual-adds", run_of("gemma4_text"))
    assert found.verdict == "yes" and found.measured["factors"] == ["layer_scalar"]
    scalars = [block._module.layer_scalar.item() for block in run_of("gemma4_text").model.layers]
    assert found.measured["smallest"] == pytest.approx(min(scalars), rel=1e-3)
    assert decide("scaled-residual-adds", run_of("llama", **TWO)).verdict == "no"


def test_a_factor_that_no_config_names(run_of: RunOf, decide: Decide) -> None:
    def halve(self: Any, hidden_states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        hidden_states = (
            hidden_states + self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)[0] * 0.5
        )
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))

    found = decide("scaled-residual-adds", run_of("llama", change=with_forward(halve)))
    assert found.verdict == "yes"
    assert (found.measured["smallest"], found.measured["largest"], found.measured["on"]) == (0.5, 0.5, "contribution")


def test_tuple_blocks(run_of: RunOf, decide: Decide) -> None:
    def first(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (args[0][0] if isinstance(args[0], tuple) else args[0], *args[1:])

    def change(module: Any) -> None:
        for block in module.model.layers:
            block.register_forward_pre_hook(first)
            block.register_forward_hook(lambda _, __, out: (out,))
        module.model.norm.register_forward_pre_hook(first)

    assert decide("tuple-blocks", run_of("llama", change=change)).blocks == [0, 1, 2]
    assert decide("tuple-blocks", run_of("llama", **TWO)).verdict == "no"


def test_parallel_blocks(run_of: RunOf, decide: Decide) -> None:
    def parallel(self: Any, hidden_states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        attention = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)[0]
        return hidden_states + attention + self.mlp(self.post_attention_layernorm(hidden_states))

    assert decide("parallel-blocks", run_of("llama", change=with_forward(parallel))).blocks == [0, 1, 2]
    assert decide("parallel-blocks", run_of("llama", **TWO)).verdict == "no"


def test_blocks_of_attention_alone(run_of: RunOf, wired: RunOf, decide: Decide) -> None:
    def alone(self: Any, hidden_states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        return hidden_states + self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)[0]

    run = wired("llama", with_forward(alone))
    assert decide("one-sublayer-blocks", run).blocks == [0, 1, 2]
    assert decide("no-mlp", run).verdict == "n/a"
    assert decide("parallel-blocks", run).verdict == "n/a"
    whole = run_of("llama", **TWO)
    assert decide("one-sublayer-blocks", whole).verdict == decide("no-mlp", whole).verdict == "no"


def test_hybrid(run_of: RunOf, wired: RunOf, decide: Decide) -> None:
    def alone(self: Any, hidden_states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))

    def change(module: Any) -> None:
        module.model.layers[1].forward = types.MethodType(alone, module.model.layers[1])

    measured = decide("hybrid", wired("llama", change)).measured
    assert measured["kinds"] == ["attention", "none"]
    [quirk] = [quirk for quirk in QUIRKS if quirk.slug == "hybrid"]
    assert quirk.say(measured, None, 2) == "Blocks mix positions in different ways: by an attention or not at all."
    assert decide("hybrid", run_of("llama", **TWO)).verdict == "no"


def test_residual_inside_module(run_of: RunOf, underived: RunOf, decide: Decide) -> None:
    def inside(self: Any, hidden_states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        hidden_states = hidden_states + self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)[0]
        return self.mlp(hidden_states)

    def change(module: Any) -> None:
        with_forward(inside)(module)
        for block in module.model.layers:
            norm = block.post_attention_layernorm
            block.mlp.forward = types.MethodType(
                lambda self, x, norm=norm: (
                    x + self.down_proj(self.act_fn(self.gate_proj(norm(x))) * self.up_proj(norm(x)))
                ),
                block.mlp,
            )

    found = decide("residual-inside-module", underived("llama", change))
    assert found.blocks == [0, 1, 2] and found.measured["modules"] == ["mlp"]
    assert decide("residual-inside-module", run_of("llama", **TWO)).verdict == "no"


def test_hyper_connections(underived: RunOf, run_of: RunOf, decide: Decide) -> None:
    run = underived("llama", lambda module: None)
    for index in range(3):
        key = Key("model.layers[i]", index, "layer_output")
        run.readings[key] = run.readings[key][None].repeat(2, 1, 1, 1)
    assert decide("hyper-connections", run).blocks == [0, 1, 2]
    assert decide("hyper-connections", run_of("llama", **TWO)).verdict == "no"


def test_experiments_leave_the_model_as_it_was(run_of: RunOf) -> None:
    from probe.experiments import run_all
    from probe.experiments.facts import facts

    for family, twin in (("gemma4_text", "tiny"), ("llama", "tiny-tied")):
        run = run_of(family, twin)
        module = run.model._module
        rotary = {name: buffer.clone() for name, buffer in module.named_buffers()}
        before, attn = digest.of_weights(module), module.config._attn_implementation
        hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules())
        text, vision = run_all(run)
        assert vision == [] and len(text) > 50
        assert sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules()) == hooks
        facts(run)
        assert digest.of_weights(module) == before
        assert module.config._attn_implementation == attn
        assert all(torch.equal(buffer, rotary[name]) for name, buffer in module.named_buffers())


@pytest.mark.parametrize("cycles", [2, 3])
def test_blocks_outside_the_list_are_told_in_the_order_in_which_a_forward_runs_them(
    run_of: RunOf, decide: Decide, cycles: int
) -> None:
    verdict = decide("unlisted-blocks", run_of("hrm_text", H_cycles=cycles))
    assert verdict.measured["order"] == ["layers", "H_module.layers"] and verdict.measured["turns"] == cycles
