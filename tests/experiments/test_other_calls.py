"""Facts of other calls than a plain forward: with embeddings, by generate, in training, with labels, and backwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from probe.experiments.calls.backward import gradient_facts
from probe.experiments.calls.calling import calling_facts
from probe.experiments.calls.file_names import file_names
from probe.experiments.mlp.balancing import balancing_facts
from probe.experiments.mlp.expert_slots import slot_facts
from probe.experiments.mlp.neurons import neuron_facts

RunOf = Callable[..., Any]


def by_name(facts: list[Any]) -> dict[str, Any]:
    return {fact.name: fact for fact in facts}


@pytest.mark.parametrize(
    ("family", "says"),
    [
        ("llama", "the model gives the same logits."),
        ("falcon_h1", "what enters block 0, given as `inputs_embeds`, gives the same."),
        ("blt", "cannot be called with `inputs_embeds`"),
    ],
)
def test_what_embeddings_stand_for(run_of: RunOf, family: str, says: str) -> None:
    assert says in by_name(calling_facts(run_of(family)))["inputs_embeds"].statement


def test_training_mode_is_told_with_the_module_that_acts_first(run_of: RunOf) -> None:
    still, dropping, noisy = (by_name(calling_facts(run_of(family))) for family in ("llama", "gpt2", "dbrx"))
    assert still["training_mode"].value == 0 and still["head_in_generate"].value == 1
    other = "the first module that gives something else for the same input than in evaluation mode is"
    assert f"{other} `transformer.drop`." in dropping["training_mode"].statement
    assert f"{other} `transformer.blocks.{{i}}.ffn.router`, on block 0." in noisy["training_mode"].statement
    settings = by_name(calling_facts(run_of("minimax_m2")))["head_in_generate"]
    assert settings.value == 1 and settings.measured == {"fails_with": "use_mtp"}
    assert not any(part.training for part in run_of("gpt2").model._module.modules())


def test_a_gradient_that_is_cut_off_is_told_of(run_of: RunOf) -> None:
    [whole], [cut] = gradient_facts(run_of("llama")), gradient_facts(run_of("llama", change=_detached))
    assert whole.value == 0
    assert "`model.layers.{i}.mlp` return" in cut.statement and "self_attn" not in cut.statement
    [calls], [probabilities] = gradient_facts(run_of("hrm_text")), gradient_facts(run_of("zaya"))
    assert "at the first tensor of what `model.layers.{i}.mlp.gate` returns, though" in probabilities.statement
    assert "arrives on some blocks or calls only at what `model.L_module` returns" in calls.statement


def _detached(module: Any) -> None:
    """Cuts the gradient off behind every MLP."""
    for block in module.model.layers:
        block.mlp.register_forward_hook(lambda _, __, output: output.detach())


@pytest.mark.parametrize(
    ("family", "says"),
    [
        ("mixtral", "`router_aux_loss_coef` (0.02) times `aux_loss` in it, which balances the experts; without the "
                    "flag it has none. Padded positions do not count."),
        ("llama4_text", "No loss balances the experts"),
        ("phimoe", "the same with it and without: the config's `router_aux_loss_coef` is 0."),
    ],
)  # fmt: skip
def test_the_loss_that_balances_experts(run_of: RunOf, family: str, says: str) -> None:
    [fact] = balancing_facts(run_of(family))
    assert says in fact.statement
    assert balancing_facts(run_of("llama")) == []


def test_a_coefficient_that_is_another_is_measured(run_of: RunOf) -> None:
    def tenfold(module: Any) -> None:
        module.router_aux_loss_coef *= 10

    [fact] = balancing_facts(run_of("mixtral", change=tenfold))
    assert fact.value == pytest.approx(0.2, rel=1e-2) and "has 0.2 times" in fact.statement


@pytest.mark.parametrize(
    ("family", "reads", "writes"),
    [
        ("llama", "`gate_proj.weight[n]` (the gate) and `up_proj.weight[n]`", "`down_proj.weight[:, n]`"),
        ("gpt2", "`c_fc.weight[:, n]`", "`c_proj.weight[n]`"),
        ("phi3", "`gate_up_proj.weight[n]` (the gate) and `gate_up_proj.weight[n + N]`", "`down_proj.weight[:, n]`"),
        ("recurrent_gemma", "`gate_proj.weight[n]` (the gate) and `up_proj.weight[n]`", "`down_proj.weight[:, n]`"),
    ],
)
def test_where_a_neuron_lies_in_its_matrices(run_of: RunOf, family: str, reads: str, writes: str) -> None:
    [fact] = neuron_facts(run_of(family))
    assert f"has the input weights {reads}, and the output weights {writes}." in fact.statement


def test_neurons_that_depend_on_each_other_have_no_input_weights_of_their_own(run_of: RunOf) -> None:
    [sparse], [shared], [silent] = (neuron_facts(run_of(each)) for each in ("gemma3n_text", "deepseek_v3", "opt"))
    assert sparse.measured == {"blocks": [*range(4, 12)]} and shared.measured == {}
    assert "On blocks 0 to 3, neuron n" in sparse.statement and "On blocks 4 to 11, neuron n" in sparse.statement
    assert "it depends on other neurons' parts of `gate_proj.weight` too" in sparse.statement
    assert "Neuron n in `model.layers.{i}.mlp.shared_experts` has the input weights `gate_proj.wei" in shared.statement
    assert silent.statement.startswith("Neuron n in `model.decoder.layers.{i}` has the input weights `fc1.weight[n]`,")


def test_a_norm_behind_the_neurons_and_inputs_that_are_rounded(run_of: RunOf) -> None:
    for twin in ("tiny", "tiny-online"):
        [rounded] = neuron_facts(run_of("bitnet", twin))
        assert "has the output weights `down_proj.weight[:, n]`; it depends on" in rounded.statement
        assert "other neurons' parts of `gate_proj.weight` and `up_proj.weight` too." in rounded.statement


def test_matrices_without_a_part_for_each_neuron_are_told_of(run_of: RunOf) -> None:
    [fact] = neuron_facts(run_of("llama", change=_squared_behind_neurons))
    assert fact.value == 0 and "before `model.layers.{i}.mlp.down_proj` or in its own" in fact.statement


def _squared_behind_neurons(module: Any) -> None:
    for block in module.model.layers:
        matrix = block.mlp.down_proj
        matrix.forward = lambda x, w=matrix: torch.nn.functional.linear(x, w.weight * w.weight.abs())


@pytest.mark.parametrize("measure", [gradient_facts, neuron_facts])
def test_an_error_with_a_graph_is_let_through(run_of: RunOf, measure: Callable[[Any], Any]) -> None:
    with pytest.raises(RuntimeError, match="out of memory"):
        measure(run_of("llama", change=_short_of_memory))


def _short_of_memory(module: Any) -> None:
    def fail(_: Any, __: Any) -> None:
        if torch.is_grad_enabled():
            raise RuntimeError("out of memory")

    module.model.layers[1].mlp.down_proj.register_forward_pre_hook(fail)


def test_what_is_told_of_a_fused_matrix_makes_its_neuron(run_of: RunOf) -> None:
    mlp = run_of("phi3").text.envoys[0]._module.mlp
    count, weight = mlp.down_proj.in_features, mlp.gate_up_proj.weight.detach()
    x = torch.randn(weight.shape[1], generator=torch.Generator().manual_seed(0))
    neurons = torch.nn.functional.silu(weight[:count] @ x) * (weight[count:] @ x)
    torch.testing.assert_close(mlp(x[None, None])[0, 0].detach(), mlp.down_proj.weight.detach() @ neurons)


def test_names_in_files_are_those_that_are_written(run_of: RunOf, tmp_path: Any) -> None:
    from safetensors import safe_open

    run = run_of("mixtral")
    [fact] = file_names(run)
    run.model._module.save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as held:
        names = set(held.keys())
    stem = "model.layers.{i}.block_sparse_moe.experts.{j}"
    assert (
        f"`model.layers.{{i}}.mlp.experts.gate_up_proj` is stored as `{stem}.w1.weight` and `{stem}.w3.weight`"
        in fact.statement
    )
    assert {f"model.layers.0.block_sparse_moe.experts.0.w{k}.weight" for k in (1, 2, 3)} <= names
    assert file_names(run_of("llama")) == []


def test_the_order_of_a_tokens_experts_is_told(run_of: RunOf) -> None:
    run = run_of("mixtral")
    [fact] = slot_facts(run)
    assert "by weight, the heaviest first" in fact.statement
    assert slot_facts(run_of("llama4_text")) == [] and slot_facts(run_of("llama")) == []
    turned = {key: held.flip(-1) if key.name == "expert_weights" else held for key, held in run.readings.items()}
    [other] = slot_facts(replace(run, readings=turned))
    assert other.value == 0 and "are not ordered by weight:" in other.statement
    [chance] = slot_facts(run_of("phimoe"))
    assert chance.value == 0 and chance.statement == other.statement
