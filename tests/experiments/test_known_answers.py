"""The experiments on twins of families of different kinds, against what their modeling code says.

For each twin the table holds all the quirks of the slugs looked at here that a careful reader of the code finds; what
is not in its row must not be found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from probe.checkpoints import load, targets
from probe.experiments import QUIRKS, errors, run_all
from probe.experiments.base import Verdict
from probe.experiments.facts import facts
from probe.experiments.pictures.load import pictures as load_pictures
from probe.measure.run import Run, measure
from probe.measure.shapes import shapes
from probe.record.findings import twin
from probe.standard import StandardizedTransformer

SLUGS = set(
    """attention-experts batch-mixing borrowed-kv conv-qk convolution-mixers delta-rule dense-first-blocks
    embedding-multiplier embeddings-again fixed-decay fp32-residual fused-qkv gated-query hash-routing hybrid
    hyper-connections interleaved-moe learned-activation mamba1 mamba2 mixture-of-experts no-mlp normed-embeddings
    one-sublayer-blocks own-attention-arithmetic parallel-blocks parallel-mixers per-layer-embeddings post-ln post-norms
    qk-norm qkv-bias quantized-linears residual-inside-module sandwich-norms scaled-embeddings scaled-logits
    scaled-residual-adds shared-expert softcapped-logits squared-relu tuple-blocks unnormalized-routing value-norm
    values-from-keys""".split()
)

KNOWN = {
    ("apertus", "tiny"): "learned-activation qk-norm",
    ("arcee", "tiny"): "squared-relu",
    ("bitnet", "tiny"): "quantized-linears squared-relu",
    ("bitnet", "tiny-online"): "quantized-linears squared-relu",
    (
        "bloom",
        "tiny",
    ): "fused-qkv normed-embeddings own-attention-arithmetic qkv-bias residual-inside-module tuple-blocks",
    ("cohere2", "tiny"): "parallel-blocks scaled-logits",
    ("cpmant", "tiny"): "own-attention-arithmetic residual-inside-module tuple-blocks",
    ("ctrl", "tiny"): "embedding-multiplier qkv-bias",
    ("dbrx", "tiny"): "fused-qkv mixture-of-experts residual-inside-module",
    ("deepseek_v3", "tiny"): "dense-first-blocks mixture-of-experts shared-expert",
    ("deepseek_v4", "tiny"): "hash-routing hyper-connections mixture-of-experts qk-norm shared-expert value-norm "
    "values-from-keys",
    ("doge", "tiny-moe"): "batch-mixing mixture-of-experts qk-norm scaled-residual-adds shared-expert",
    ("exaone4", "tiny"): "post-norms qk-norm",
    (
        "falcon_h1",
        "tiny",
    ): "embedding-multiplier mamba2 parallel-mixers scaled-logits scaled-residual-adds tuple-blocks",
    ("falcon_mamba", "tiny"): "fp32-residual mamba1 one-sublayer-blocks",
    ("gemma3n_text", "tiny"): "borrowed-kv embeddings-again hyper-connections per-layer-embeddings qk-norm "
    "sandwich-norms scaled-embeddings scaled-residual-adds softcapped-logits value-norm",
    ("gpt2", "tiny"): "fused-qkv qkv-bias",
    ("gpt_neo", "tiny"): "own-attention-arithmetic tuple-blocks",
    ("granitemoehybrid", "tiny"): "embedding-multiplier hybrid mamba2 mixture-of-experts scaled-logits "
    "scaled-residual-adds shared-expert",
    ("inkling_text", "tiny"): "conv-qk dense-first-blocks mixture-of-experts normed-embeddings qk-norm shared-expert "
    "unnormalized-routing",
    ("jamba", "tiny"): "hybrid interleaved-moe mamba1 mixture-of-experts unnormalized-routing",
    ("jetmoe", "tiny"): "attention-experts mixture-of-experts",
    ("kimi_linear", "tiny"): "delta-rule dense-first-blocks hybrid mixture-of-experts shared-expert",
    ("lfm2", "tiny"): "convolution-mixers hybrid qk-norm",
    ("minimax", "tiny"): "fixed-decay hybrid mixture-of-experts post-ln scaled-residual-adds",
    ("olmoe", "tiny"): "mixture-of-experts qk-norm unnormalized-routing",
    ("openai-gpt", "tiny"): "fused-qkv own-attention-arithmetic post-ln qkv-bias tuple-blocks",
    ("persimmon", "tiny"): "fused-qkv qk-norm qkv-bias squared-relu",
    ("qwen3_next", "tiny"): "delta-rule gated-query hybrid mixture-of-experts qk-norm shared-expert",
    ("rwkv", "tiny"): "fixed-decay squared-relu tuple-blocks",
    ("vaultgemma", "tiny"): "scaled-embeddings softcapped-logits",
    ("xglm", "tiny"): "no-mlp own-attention-arithmetic qkv-bias scaled-embeddings",
    ("xlstm", "tiny"): "softcapped-logits tuple-blocks",
    ("zamba2", "tiny"): "embeddings-again hybrid mamba2 one-sublayer-blocks residual-inside-module",
}

UNDECIDED = {
    ("doge", "tiny-moe"): {"per-layer-embeddings", "embeddings-again"},  # its rows mix, so that they say nothing
}


@cache
def run_of(family: str, name: str) -> Run:
    return measure(twin(family, name))


def verdict(family: str, slug: str, name: str = "tiny") -> Verdict:
    return next(quirk for quirk in QUIRKS if quirk.slug == slug and quirk.about == "text").run(run_of(family, name))


@pytest.mark.parametrize(("family", "name"), KNOWN, ids=[f"{family}-{name}" for family, name in KNOWN])
def test_known_answers(family: str, name: str) -> None:
    run = run_of(family, name)
    quirks = [quirk for quirk in QUIRKS if quirk.slug in SLUGS and quirk.about == "text"]
    assert {quirk.slug for quirk in quirks} == SLUGS
    found = [quirk.record(quirk.run(run), len(run.text)) for quirk in quirks]
    assert {each.slug for each in found if each.verdict == "yes"} == set(KNOWN[family, name].split())
    assert {each.slug for each in found if each.verdict == "inconclusive"} == UNDECIDED.get((family, name), set())
    for each in found:
        if each.verdict in ("yes", "inconclusive"):
            assert each.statement and each.statement.endswith(".") and "None" not in each.statement, each
    assert facts(run)


SHOWN = [
    # What the collected answers say otherwise, and the number that decides it.
    ("codegen", "own-attention-arithmetic", "no", {"calls": 3}),  # it calls the shared interface now
    ("codegen", "tuple-blocks", "no", {}),  # and its blocks return a tensor
    ("gpt2", "qkv-bias", "yes", {"largest_at_zero": 0.7}),  # c_attn has a bias
    ("deepseek_v4", "qk-norm", "yes", {"queries_normed": 8}),  # both are normed behind their projections
    ("phimoe", "unnormalized-routing", "yes", {"largest_sum": 2.0}),  # its sums lie between 1.5 and 2
]


@pytest.mark.parametrize(("family", "slug", "answer", "numbers"), SHOWN)
def test_what_the_run_shows_against_collected_answers(
    family: str, slug: str, answer: str, numbers: dict[str, Any]
) -> None:
    found = verdict(family, slug)
    assert found.verdict == answer
    for name, number in numbers.items():
        assert found.measured[name] == pytest.approx(number, rel=0.01), name


@pytest.mark.parametrize(
    ("family", "name", "measured"),
    [
        ("doge", "tiny-moe", {"experts": 16, "chosen": 3}),  # chosen by two halves of 4, which are no logits of experts
        ("inkling_text", "tiny", {"experts": 8, "chosen": 3, "logits_of_no_expert": 2}),  # for two that all pass
        ("longcat_flash", "tiny", {"experts": 11, "chosen": 3}),  # three of them give back what they are given
        ("zaya", "tiny", {"experts": 8, "chosen": 1, "logits_of_no_expert": 1}),  # for taking none
    ],
)
def test_experts_are_those_that_a_token_can_be_sent_to(family: str, name: str, measured: dict[str, int]) -> None:
    assert verdict(family, "mixture-of-experts", name).measured == measured
    [drawn] = load_pictures(run_of(family, name))
    assert {len(series.numbers) for series in drawn.series} == {measured["experts"]}


@pytest.mark.parametrize(
    ("family", "slug", "explained", "said"),
    [
        ("ctrl", "embedding-multiplier", {"factor_squared": "hidden_size"}, "by √96, the root of the hidden size,"),
        ("falcon_h1", "scaled-logits", {"factor": "lm_head_multiplier"}, "multiplies the head's output by 0.8"),
        ("granite", "scaled-logits", {"divisor": "logits_scaling"}, "divides the head's output by 16"),
        ("hyperclovax", "scaled-logits", {"factor": "logits_scaling"}, "multiplies the head's output by 1.6"),
        (
            "granite",
            "scaled-residual-adds",
            dict.fromkeys(("smallest", "largest"), "residual_multiplier"),
            "`residual_multiplier` multiplies what is added, by 0.22",
        ),
        ("doge", "scaled-residual-adds", {}, "`input_residual` and `post_attention_residual` multiply parts"),
        ("recurrent_gemma", "softcapped-logits", {"cap": "logits_soft_cap"}, "at ±30"),
        ("xlstm", "softcapped-logits", {"cap": "output_logit_soft_cap"}, "at ±30"),
    ],
)
def test_a_config_entry_stands_behind_a_factor(family: str, slug: str, explained: dict[str, str], said: str) -> None:
    quirk = next(quirk for quirk in QUIRKS if quirk.slug == slug and quirk.about == "text")
    found = verdict(family, slug)
    assert found.explained == explained
    assert said in (quirk.record(found, len(run_of(family, "tiny").text)).statement or "")


def test_sublayers_that_read_one_point_of_the_stream_stand_beside_each_other() -> None:
    def beside(family: str) -> list[bool]:
        run = run_of(family, "tiny")
        ((shape,), _) = shapes(run, run.text, [""] * len(run.text))
        return [sublayer.parallel_with_next for sublayer in shape.sublayers]

    assert beside("falcon_h1") == [True, False, False]
    assert beside("cohere2") == [True, False]
    assert beside("arcee") == [False, False]


def test_no_experiment_raises_on_a_recurrent_model() -> None:
    text, vision = run_all(run_of("falcon_mamba", "tiny"))
    assert vision == [] and errors(text) == []
    assert all(each.verdict in ("yes", "no", "n/a") for each in text)
    assert next(each for each in text if each.slug == "qk-norm").statement == "No block has an attention."


def test_an_experiment_that_raises_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    import probe.experiments as experiments

    def broken(_: Run) -> Verdict:
        raise ValueError("a tensor is missing.\nmore words")

    quirks = [quirk for quirk in QUIRKS if quirk.slug in ("qkv-bias", "post-ln")]
    first = type(quirks[0])(quirks[0].slug, quirks[0].label, "text", broken, quirks[0].say)
    monkeypatch.setattr(experiments, "QUIRKS", (first, quirks[1]))
    monkeypatch.delenv("PROBE_STRICT", raising=False)
    text, _ = run_all(run_of("arcee", "tiny"))
    assert errors(text) == [first.slug] and text[1].verdict == "no"
    assert text[0].verdict == "inconclusive" and text[0].measured == {"error": "ValueError"}
    assert text[0].statement == (
        f"The experiment {first.slug} stopped with an error before it could answer: ValueError, a tensor is missing."
    )
    monkeypatch.setenv("PROBE_STRICT", "1")
    with pytest.raises(ValueError, match="a tensor is missing"):
        run_all(run_of("arcee", "tiny"))


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_a_number_that_overflows_leaves_the_verdict_open(number: float) -> None:
    from probe.experiments import decide

    quirk = replace(QUIRKS[0], run=lambda _: Verdict("no", [], {"n": [1.0, number]}))
    assert decide(quirk, run_of("arcee", "tiny")).verdict == "inconclusive"


def changed(family: str, change: Callable[[Any], None]) -> Run:
    """A run of a twin that was changed by hand."""
    target = next(target for target in targets(family) if target.kind == "tiny")
    model = StandardizedTransformer(load(target, attn="eager"))
    with torch.no_grad():
        change(model._module)
    return measure(model)


def decide(slug: str, run: Run) -> Verdict:
    return next(quirk for quirk in QUIRKS if quirk.slug == slug and quirk.about == "text").run(run)


def test_a_selective_scan_whose_steps_select_nothing() -> None:
    def level(module: Any) -> None:
        for block in module.backbone.layers:
            block.mixer.dt_proj.weight.zero_()

    run = changed("mamba", level)
    assert decide("mamba1", run).verdict == "no"
    assert decide("fixed-decay", run).blocks == [0, 1, 2]
    assert verdict("falcon_mamba", "fixed-decay").verdict == "no"


def test_a_delta_rule_that_takes_nothing_off() -> None:
    def never(module: Any) -> None:
        for block in module.model.layers:
            if hasattr(block, "linear_attn"):
                block.linear_attn.b_proj.weight.zero_()
                block.linear_attn.b_proj.register_forward_hook(lambda _, __, out: out - 40)

    assert decide("delta-rule", changed("olmo_hybrid", never)).verdict == "no"
    assert verdict("olmo_hybrid", "delta-rule").verdict == "yes"


def test_one_shared_number_makes_no_state_space_dual() -> None:
    found = verdict("mamba2", "mamba2")
    assert found.verdict == "yes" and len(found.measured["state"]) == 3
    assert 0 <= found.measured["least_factor"] < found.measured["largest_factor"] < 1
    assert verdict("falcon_mamba", "mamba2").verdict == verdict("minimax", "mamba2").verdict == "no"


def test_an_mlp_whose_layers_stand_in_the_block() -> None:
    assert verdict("opt", "no-mlp").blocks == [0, 1, 2]
    assert verdict("arcee", "no-mlp").verdict == "no"
    assert verdict("falcon_mamba", "no-mlp").verdict == "n/a"


class Unit(nn.Module):
    """Gives every vector the length one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / x.norm(dim=-1, keepdim=True)


def test_qk_norm_behind_own_arithmetic() -> None:
    def norm(module: Any) -> None:
        for block in module.transformer.h:
            attention = block.attn.attention
            for name in ("q_proj", "k_proj"):
                setattr(attention, name, nn.Sequential(getattr(attention, name), Unit()))

    found = decide("qk-norm", changed("gpt_neo", norm))
    assert found.blocks == [0, 1, 2, 3] and found.measured["keys_normed"] == 4
    assert verdict("gpt_neo", "qk-norm").verdict == "no"


def fact(family: str, name: str) -> Any:
    return next(each for each in facts(run_of(family, "tiny")) if each.name == name)


def test_facts_that_cannot_be_measured_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import probe.experiments.facts as module

    def broken(_: Run) -> list[Any]:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(module, "hidden_state_facts", broken)
    with pytest.raises(RuntimeError, match="no such kernel"):
        facts(run_of("arcee", "tiny"))
    monkeypatch.delenv("PROBE_STRICT")
    told = [each.statement for each in facts(run_of("arcee", "tiny"))]
    assert "The hidden states could not be measured: RuntimeError, no such kernel." in told


def test_kernels_are_compared_only_where_there_are_two() -> None:
    assert fact("falcon_mamba", "takes_sdpa").value is False
    alone = "No block has an attention, so the setting `attn` changes nothing; the class refuses sdpa."
    assert fact("falcon_mamba", "takes_sdpa").statement == alone
    assert "refuses sdpa: there is no other kernel" in fact("gemma2", "takes_sdpa").statement
    assert 0 < fact("cohere2", "eager_sdpa").value < 1e-3
    assert not any(each.name == "takes_sdpa" for each in facts(run_of("cohere2", "tiny")))


def test_a_class_that_refuses_sdpa_is_not_run_under_it() -> None:
    """Its config can be told to all the same, and its mask is then another kernel's: no load comes to that."""
    for family in ("bloom", "openai-gpt"):
        assert "refuses sdpa" in fact(family, "takes_sdpa").statement


def test_the_last_blocks_output_is_found_among_the_hidden_states() -> None:
    """Mamba returns what leaves each block and not what enters the first, so that all are one place further up."""
    assert fact("falcon_mamba", "last_stream_in_hidden_states").value == -2
    assert fact("openai-gpt", "last_stream_in_hidden_states").value == -1
    assert not any(each.name == "last_stream_in_hidden_states" for each in facts(run_of("arcee", "tiny")))
