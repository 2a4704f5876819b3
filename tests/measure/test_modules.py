"""What modules hold and return: a slice of a weight moves its own head alone, and what is returned is told as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch

from probe.experiments.attention.traced import attention_value
from probe.measure.run import Run as Measured
from probe.measure.run import measure
from probe.record.findings import twin
from probe.record.modules import Modules, examine, rows
from probe.record.modules.experts import _fit
from probe.record.modules.layout import Layout, Run, layout
from probe.record.modules.sized import _own, _readings
from probe.record.modules.weights import Held
from probe.schema import Output, Returned, Weight
from probe.standard.stack import same
from probe.standard.trace import read_all

HEADED = [
    ("llama", "tiny", "6 × 8"),
    ("gpt2", "tiny", "queries 6 × 16, keys 6 × 16, values 6 × 16"),
    ("gpt_neox", "tiny", "6 × (queries 16, keys 16, values 16)"),
    ("falcon", "tiny-grouped", "2 × (queries 3 × 16, keys 16, values 16)"),
    ("qwen3_next", "tiny", "6 × (queries 24, gate 24)"),
    ("deepseek_v3", "tiny", "6 × (keys 12, values 14)"),
    ("codegen", "tiny", "4 × (queries 2 × 16, values 2 × 16, keys 2 × 16)"),
]


@cache
def measured(family: str, name: str = "tiny") -> tuple[Measured, Modules]:
    run = measure(twin(family, name))
    return run, examine(run)


def taken(parameter: torch.Tensor, subscript: str, head: int) -> torch.Tensor:
    """The part of a parameter that a record's subscript takes."""
    part: torch.Tensor = eval(f"parameter{subscript}", {"parameter": parameter, "h": head})
    return part


@contextmanager
def changed(parameter: torch.Tensor, subscript: str, head: int) -> Iterator[None]:
    """The slice of one head, other than it was, while the context lasts."""
    before = parameter.detach().clone()
    with torch.no_grad():
        taken(parameter, subscript, head).mul_(1.5).add_(0.1)
    try:
        yield
    finally:
        with torch.no_grad():
            parameter.copy_(before)


def read(run: Measured, name: str, block: int) -> torch.Tensor:
    """One value of a block's attention in a forward of now."""
    found = read_all(run.model, run.inputs, lambda key: (key.name, key.block) == (name, block))
    [value] = found.values()
    assert isinstance(value, torch.Tensor)
    return value.float()


@pytest.mark.parametrize(("family", "name", "words"), HEADED, ids=[f for f, _, _ in HEADED])
def test_a_heads_slice_of_a_weight_moves_that_head_alone(family: str, name: str, words: str) -> None:
    run, found = measured(family, name)
    weights = rows(found.weights)
    assert words in {weight.layout for weight in weights}
    for weight in (weight for weight in weights if weight.layout):
        block = weight.blocks[0]
        parameter = run.model._module.get_parameter(weight.path.replace("{i}", str(block)))
        for kind in ("attention_queries", "attention_keys", "attention_values"):
            if kind in weight.parts:
                _moves_alone(run, weight, parameter, block, kind)


def _moves_alone(run: Measured, weight: Weight, parameter: torch.Tensor, block: int, kind: str) -> None:
    before = attention_value(run, block, kind)
    assert before is not None
    head = weight.counts[kind] - 1
    with changed(parameter, weight.parts[kind], head):
        after = read(run, kind, block)
    moved = (after - before).abs().amax((0, 2, 3)) / before.abs().max()
    first = head * before.shape[1] // weight.counts[kind]
    assert moved[first:].min() > 1e-2, (weight.path, kind)
    assert moved[:first].max() < 1e-5, (weight.path, kind)


@pytest.mark.parametrize(("family", "name"), [("hrm_text", "tiny"), ("zamba", "tiny"), ("mpt", "tiny-clip")])
def test_weights_that_run_again_and_clipped_projections_have_their_heads(family: str, name: str) -> None:
    """Blocks that run in several passes, an attention under two blocks, and queries of which most lie at a clip."""
    run, found = measured(family, name)
    assert len(weights := rows(found.weights)) >= 2
    assert all(weight.layout and len(weight.yields) in (1, 3) for weight in weights)
    assert {block for weight in weights for block in weight.blocks} == {
        index for index in range(len(run.text)) if attention_value(run, index, "attention_queries") is not None
    }
    assert {len(weight.blocks) for weight in weights} == {len(weights[0].blocks)}


def test_an_attention_that_mixes_twice_has_the_values_of_both_times() -> None:
    _, modules = measured("diffllama")
    [row] = [row for row in rows(modules.weights) if row.path.endswith("v_proj.weight")]
    assert (row.layout, row.parts) == ("6 × 16", {"attention_values": "[h * 16:h * 16 + 16]"})


def test_the_output_projections_slice_is_what_a_head_adds() -> None:
    for family, transposed in (("llama", False), ("gpt2", True)):
        run, found = measured(family)
        (weight,) = [w for w in rows(found.weights) if w.yields == ["attention_output"]]
        assert (weight.axis, weight.counts) == (0 if transposed else 1, {"attention_output": 6})
        parameter = run.model._module.get_parameter(weight.path.replace("{i}", "0"))
        part = taken(parameter, weight.parts["attention_output"], 2).clone()
        heads, before = (attention_value(run, 0, n) for n in ("attention_head_outputs", "attention_output"))
        assert heads is not None and before is not None
        with changed(parameter, weight.parts["attention_output"], 2):
            after = read(run, "attention_output", 0)
        matrix = part if transposed else part.T
        added = heads.unflatten(-1, (-1, matrix.shape[0]))[:, :, 2] if heads.ndim == 3 else heads[:, :, 2]
        assert torch.allclose(after - before, added @ (matrix * 0.5 + 0.1), atol=1e-4)


def test_a_token_reaches_its_own_experts_alone() -> None:
    for family, axis in (("gpt_oss", 0), ("qwen3_next", 0)):
        run, found = measured(family)
        stacked = [weight for weight in rows(found.weights) if weight.yields == ["expert_outputs"]]
        assert {weight.path.rpartition(".")[2] for weight in stacked} >= {"gate_up_proj", "down_proj"}
        for weight in stacked:
            count = weight.counts["expert_outputs"]
            assert (weight.axis, weight.layout, weight.shape[axis]) == (axis, f"{count} experts", count)
    parameter = run.model._module.get_parameter(weight.path.replace("{i}", str(weight.blocks[0])))
    indices = run.text.get(weight.blocks[0], "mlp", "expert_indices")
    before = run.text.get(weight.blocks[0], "mlp", "routed_output")
    assert indices is not None and before is not None
    with changed(parameter, weight.parts["expert_outputs"], int(indices[0, 0, 0])):
        after = read_all(
            run.model, run.inputs, lambda key: key.name == "routed_output" and key.block == weight.blocks[0]
        )
    moved = (next(iter(after.values())) - before).abs().amax(-1)[0] > 1e-6
    assert moved.tolist() == (indices[0] == indices[0, 0, 0]).any(-1).tolist()


def test_experts_are_found_where_positions_are_mixed_behind_them() -> None:
    """The block's output at a token depends on the experts of the tokens before it, by way of a convolution."""
    _, found = measured("inkling_text")
    stacked = [weight for weight in rows(found.weights) if "expert_outputs" in weight.yields]
    assert {weight.path.rpartition("layers.{i}.")[2] for weight in stacked} == {
        "mlp.experts.gate_up_proj",
        "mlp.experts.down_proj",
    }
    assert all(weight.counts == {"expert_outputs": 8} for weight in stacked)


def test_an_axis_of_one_place_holds_no_experts() -> None:
    mask = torch.ones(4, 1, 3, dtype=torch.bool)
    assert _fit([(mask, [0, 2]), (mask, [0, 1])], (4, 1, 3), 8) is None
    one = torch.zeros(8, 4, 3, dtype=torch.bool)
    one[2] = True
    assert _fit([(one, [2]), (one, [2])], (8, 4, 3), 8) == (0, 1)  # every token went to the same expert


def test_layouts_that_are_no_groups_are_none() -> None:
    assert layout({"attention_queries": [[0, 1], [1, 2]]}, 4) is None  # they overlap
    assert layout({"attention_queries": [[0, 2], [1, 3]]}, 4) is None  # interleaved
    found = layout({"attention_queries": [[0, 1], [4, 5]]}, 8)
    assert found is not None and found.words() == "2 × (queries 2, rest 2)"
    assert found.subscript("attention_queries", 1) == "[:, h * 4:h * 4 + 2]"


def test_a_layout_is_taken_over_by_the_sizes_that_its_numbers_are() -> None:
    fused = Layout(2, (Run("attention_queries", 3, 16), Run("attention_keys", 1, 16), Run("attention_values", 1, 16)))
    theirs = {"num_kv_heads": 2, "head_dim": 16, "queries of a key": 3, "num_heads": 6}
    own = {"num_kv_heads": 8, "head_dim": 64, "queries of a key": 16, "num_heads": 128}
    assert {made.total for made in _readings(fused, theirs, own, list(theirs))} == {9216}


def test_experts_side_by_side_are_divided_by_the_checkpoints_number_of_them() -> None:
    twin = Layout(1, (Run("expert_outputs", 8, 160),))
    held = Held(0, "mlp.w1", (1280, 96), ("expert_outputs",), 0, twin, (("expert_outputs", "[h * 160]"),), "seen")
    told = _own(held, (3200, 200), {"num_experts": 8, "num_heads": 6}, {"num_experts": 16, "num_heads": 8})
    assert told.layout == Layout(1, (Run("expert_outputs", 16, 200),))
    assert told.parts == (("expert_outputs", "[h * 200:h * 200 + 200]"),)
    assert _own(held, (3205, 200), {"num_experts": 8}, {"num_experts": 16}).layout is None
    assert _own(held, (3200, 200), {}, {}).layout is None


def test_modules_are_told_with_the_values_that_they_return() -> None:
    assert _elements("gpt_oss", "model.layers.{i}.mlp.router") == [
        (0, "Tensor", "model.layers[i].mlp.router_logits"),
        (1, "Tensor", "model.layers[i].mlp.expert_weights"),
        (2, "Tensor", "model.layers[i].mlp.expert_indices"),
    ]
    assert _elements("bloom", "transformer.h.{i}.self_attention")[0] == (0, "Tensor", "model.layers[i].layer_mid")
    assert _row("llama", "model.layers.{i}").type == "Tensor" and _row("bloom", "transformer.h.{i}").type == "tuple"


def _row(family: str, path: str) -> Returned:
    (row,) = [row for row in measured(family)[1].returned if row.path == path]
    return row


def _elements(family: str, path: str) -> list[tuple[Any, ...]]:
    return [(e.position, e.type, e.value) for e in _row(family, path).elements]


def test_a_changed_router_is_told_by_what_it_returns() -> None:
    run, _ = measured("gpt_oss")
    routers = [layer.mlp.router._module for layer in run.model.layers]
    kept = [router.forward for router in routers]

    def otherwise(forward: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            logits, weights, indices = forward(*args, **kwargs)
            return Scores((logits.softmax(-1), weights, indices))

        return call

    for router in routers:
        router.forward = otherwise(router.forward)
    try:
        (row,) = [row for row in examine(run).returned if row.path.endswith("mlp.router")]
    finally:
        for router, forward in zip(routers, kept, strict=True):
            router.forward = forward
    assert (row.type, row.elements[0].value, row.elements[0].made) == ("Scores", None, "softmax(router_logits)")


def test_a_mask_with_infinite_numbers_is_no_value_however_large_its_scale() -> None:
    mask = torch.tensor([0.0, -torch.inf])
    assert not same(torch.tensor([1.0, 2.0]), mask) and same(torch.zeros(2), torch.zeros(2))


class Scores(tuple[Any, ...]):
    """A tuple of a class of its own."""


def test_outputs_tell_gaps_refusals_and_the_load() -> None:
    def of(family: str, flag: str, load: str) -> Output:
        (row,) = [r for r in measured(family)[1].outputs if (r.flag, r.load) == (flag, load) and r.field != "aux_loss"]
        return row

    assert of("llama", "output_attentions", "default").length == 0
    eager = of("jamba", "output_attentions", "eager")
    assert [(part.entries, part.blocks) for part in eager.equals] == [([0, 1], [2, 6])]
    logits = of("deepseek_v3", "output_router_logits", "default")
    assert [(part.value, part.blocks) for part in logits.equals] == [("model.layers[i].mlp.router_logits", [2, 3])]
    assert of("llama", "output_router_logits", "default").field is None
    [first] = of("inkling_text", "output_router_logits", "default").equals
    assert (first.value, first.made) == ("model.layers[i].mlp.router_logits", "router_logits[..., :8]")
    assert (first.entries, first.blocks) == ([0, 1, 2, 3], [2, 3, 4, 5])
    states = of("llama", "output_hidden_states", "default")
    assert [(part.value, part.entries) for part in states.equals] == [
        ("model.layers[i].layer_input", [0, 1, 2]),
        ("model.final_norm_output", [3]),
    ]


def test_a_flag_that_the_forward_refuses_is_told() -> None:
    run, _ = measured("llama")
    module = run.model._module
    forward = module.forward

    def refusing(*args: Any, output_attentions: bool = False, **kwargs: Any) -> Any:
        if output_attentions:
            raise ValueError("no attentions here")
        return forward(*args, **kwargs)

    module.forward = refusing
    try:
        (row,) = [row for row in examine(run).outputs if row.flag == "output_attentions"]
    finally:
        module.forward = forward
    assert not row.accepted and "ValueError, no attentions here" in row.statement
