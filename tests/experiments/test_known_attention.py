"""The experiments on attentions, positions, caches and norms, on twins of families of different kinds, against what
their modeling code says.

For each twin the table holds all the quirks of the slugs looked at here that a careful reader of the code finds; what
is not in its row must not be found.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from probe.checkpoints import load, targets
from probe.experiments import QUIRKS
from probe.experiments.attention.score_scales import score_scales
from probe.experiments.base import Verdict
from probe.experiments.calls.cache import cache_facts
from probe.experiments.calls.generation import generation_facts
from probe.measure.run import Run, measure
from probe.standard import StandardizedTransformer

SLUGS = set(
    """alibi attention-sink attention-temperature cache-in-modules cached-otherwise chunked-attention content-bias
    gain-norm interleaved-rotary key-bias layernorm multi-query multimodal-rotary no-cache nope-blocks output-gate
    partial-rotary per-block-sizes position-embeddings proportional-rotary relative-bias rescaled-rotary rotary-bases
    shortened-blocks sink-scaled-heads sliding-window softcapped-scores sparse-attention sub-norms turned-heads
    unscaled-scores weightless-norms""".split()
)

KNOWN = {
    ("afmoe", "tiny"): "nope-blocks output-gate sliding-window",
    ("apertus", "tiny"): "rescaled-rotary",
    ("axk2", "tiny"): "cached-otherwise sparse-attention",
    ("beam", "tiny"): "attention-temperature nope-blocks output-gate sliding-window",
    ("bitnet", "tiny"): "sub-norms",
    ("bloom", "tiny"): "alibi layernorm",
    ("blt", "tiny"): "interleaved-rotary no-cache",
    ("codegen", "tiny"): "interleaved-rotary layernorm partial-rotary",
    ("cohere2", "tiny"): "interleaved-rotary layernorm nope-blocks sliding-window",
    ("cohere2_moe", "tiny-dense-first"): "interleaved-rotary layernorm nope-blocks sliding-window",
    ("cpmant", "tiny"): "relative-bias",
    ("deepseek_v2", "tiny"): "cached-otherwise interleaved-rotary rescaled-rotary",
    ("deepseek_v32", "tiny"): "cached-otherwise rescaled-rotary sparse-attention",
    ("diffllama", "tiny"): "sub-norms",
    ("doge", "tiny"): "key-bias sparse-attention",
    ("dory", "tiny"): "output-gate rotary-bases sliding-window sub-norms weightless-norms",
    ("dots3_note_text", "tiny"): "cached-otherwise output-gate per-block-sizes rotary-bases sliding-window "
    "sparse-attention",
    ("falcon", "tiny-alibi"): "alibi layernorm",
    ("gemma2", "tiny"): "gain-norm sliding-window softcapped-scores",
    ("glm4", "tiny"): "interleaved-rotary partial-rotary",
    ("gpt2", "tiny"): "layernorm position-embeddings",
    ("gpt_neo", "tiny"): "layernorm position-embeddings sliding-window unscaled-scores",
    ("gpt_oss", "tiny"): "attention-sink rescaled-rotary sliding-window",
    ("gptj", "tiny"): "interleaved-rotary layernorm partial-rotary",
    ("granite_swa", "tiny"): "sink-scaled-heads sliding-window",
    ("granite_swa", "tiny-nope"): "nope-blocks sink-scaled-heads sliding-window",
    ("hunyuan_v1_dense", "tiny"): "rescaled-rotary",
    ("inkling2_text", "tiny"): "attention-sink attention-temperature content-bias output-gate sliding-window",
    ("jamba", "tiny"): "nope-blocks",
    ("kimi_k2", "tiny"): "cached-otherwise rescaled-rotary",
    ("kimi_linear", "tiny"): "cached-otherwise nope-blocks",
    ("lfm3", "tiny"): "output-gate proportional-rotary rotary-bases sliding-window",
    ("longcat_flash", "tiny"): "cached-otherwise",
    ("mamba", "tiny"): "",
    ("mimo_v2_flash", "tiny"): "attention-sink partial-rotary per-block-sizes rotary-bases sliding-window",
    ("minimax_m3_vl_text", "tiny"): "gain-norm partial-rotary sparse-attention",
    ("ministral3", "tiny-temperature"): "attention-temperature rescaled-rotary",
    ("mpt", "tiny"): "alibi layernorm",
    ("nanochat", "tiny"): "weightless-norms",
    ("nemotron", "tiny"): "gain-norm layernorm partial-rotary",
    ("olmo", "tiny"): "layernorm weightless-norms",
    ("olmo_hybrid", "tiny"): "nope-blocks",
    ("openai-gpt", "tiny"): "layernorm no-cache position-embeddings",
    ("opt", "tiny-post-norm"): "layernorm position-embeddings",
    ("phi4_multimodal", "tiny"): "partial-rotary sliding-window",
    ("qwen2_vl_text", "tiny"): "multimodal-rotary",
    ("qwen3_5_text", "tiny"): "gain-norm multimodal-rotary partial-rotary",
    ("qwen4_exp_text", "tiny"): "gain-norm multimodal-rotary partial-rotary sparse-attention",
    ("recurrent_gemma", "tiny"): "cache-in-modules gain-norm multi-query partial-rotary sliding-window",
    ("sarvam_mla", "tiny"): "cached-otherwise rescaled-rotary",
    ("smollm3", "tiny"): "nope-blocks",
    ("vaultgemma", "tiny"): "gain-norm softcapped-scores",
    ("xlstm", "tiny"): "",
    ("zamba", "tiny"): "nope-blocks",
    ("zamba2", "tiny"): "",
    ("zamba2", "tiny-adapters"): "",
    ("zamba2", "tiny-no-rotary"): "nope-blocks",
    ("zaya", "tiny-sliding"): "partial-rotary rotary-bases sliding-window",
}

EVERY = {quirk.slug: quirk for quirk in QUIRKS if quirk.about == "text"}


@cache
def run_of(family: str, name: str = "tiny") -> Run:
    target = next(target for target in targets(family) if target.kind == "tiny" and target.id == name)
    return measure(StandardizedTransformer(load(target, attn="eager")))


def decide(slug: str, run: Run) -> Verdict:
    found = EVERY[slug].run(run)
    EVERY[slug].record(found, len(run.text))
    return found


@pytest.mark.parametrize(("family", "name"), KNOWN, ids=[f"{family}-{name}" for family, name in KNOWN])
def test_quirks_of_a_twin(family: str, name: str) -> None:
    run = run_of(family, name)
    verdicts = {slug: decide(slug, run).verdict for slug in sorted(SLUGS)}
    assert {slug for slug, verdict in verdicts.items() if verdict == "yes"} == set(KNOWN[family, name].split())
    assert not {slug for slug, verdict in verdicts.items() if verdict == "inconclusive"}


@pytest.mark.parametrize(
    ("family", "slug", "blocks", "measured"),
    [
        ("cohere2", "nope-blocks", [1, 3], {}),
        ("bloom", "alibi", [0, 1, 2], {"slopes": [-0.5, -0.00391]}),
        ("gemma2", "softcapped-scores", [0, 1, 2, 3], {"cap": 50.0}),
        ("gpt_neo", "sliding-window", [1, 3], {"window": 8}),
        ("phi", "partial-rotary", [0, 1, 2], {"share": 0.4, "turning": 8}),  # as its config says
        ("qwen2_vl_text", "multimodal-rotary", [0, 1, 2], {"dimensions": [4, 6, 6]}),
        ("kimi_k2", "cached-otherwise", [0, 1, 2, 3], {"stored": [1, 28], "keys": [6, 20]}),
        ("blt", "no-cache", None, {"raises": "AttributeError"}),
        ("deepseek_v4", "sparse-attention", [2, 3, 5, 7], {}),  # the others compress, and choose nothing
        ("dory", "rotary-bases", None, {"base_full_attention": 1e7, "base_sliding_attention": 1e4}),
    ],
)
def test_blocks_and_numbers(family: str, slug: str, blocks: Any, measured: dict[str, Any]) -> None:
    found = decide(slug, run_of(family))
    assert found.blocks == blocks
    for name, number in measured.items():
        assert found.measured[name] == (pytest.approx(number) if isinstance(number, (float, list)) else number)


def test_dense_blocks_turn_where_mixtures_that_attend_in_full_do_not() -> None:
    run = run_of("cohere2_moe", "tiny-dense-first")
    assert decide("interleaved-rotary", run).blocks == [0, 1, 2, 4] and decide("nope-blocks", run).blocks == [3, 5]


def test_a_formula_for_the_temperature_is_told_only_where_it_fits() -> None:
    """Ministral 3 counts positions from 0, in steps; Beam's factor grows without any, and by little."""
    found = decide("attention-temperature", run_of("ministral3", "tiny-temperature"))
    assert (found.measured["step"], found.measured["counted"]) == (8, "position")
    assert found.explained == {
        "step": "rope_parameters.original_max_position_embeddings",
        "scale": "rope_parameters.llama_4_scaling_beta",
    }
    found = decide("attention-temperature", run_of("beam"))
    assert found.blocks == [3, 5] and "step" not in found.measured


def test_what_lists_made_by_hand_say_otherwise() -> None:
    """Neighbours turn together on every block of Llama 4 that turns at all."""
    found = decide("interleaved-rotary", run_of("llama4_text"))
    assert found.verdict == "yes" and found.blocks == [0, 1, 2, 4, 5, 6]


def generation(family: str) -> dict[str, Any]:
    return {fact.name: fact for fact in generation_facts(run_of(family))}


def test_what_a_step_gives_and_the_cache_holds() -> None:
    sliding, hybrid = generation("gemma2"), generation("jamba")
    assert sliding["step_positions"].value == 1
    assert (
        "queries of 1, and keys and values of 8 on `sliding_attention` and 13 on `full_attention`, after a prompt of 12"
        in sliding["step_positions"].statement
    )
    left = "7 positions (one fewer than its window of 8)"
    assert f"`sliding_attention` {left}; `full_attention` 40" in sliding["cache_by_block_type"].statement
    assert f"`full_attention` {left}." in generation("mistral")["cache_by_block_type"].statement
    assert "`linear_attention` a state of 12,288 bytes" in hybrid["cache_by_block_type"].statement


def test_an_edit_of_the_prompt_reaches_a_step_through_what_is_cached() -> None:
    """A block that attends with another's keys and values puts nothing of its own into the cache."""
    assert generation("gemma2")["edits_of_the_prompt_reach"].value == 4
    borrowing = generation("gemma3n_text")["edits_of_the_prompt_reach"]
    assert borrowing.value == 8 and borrowing.statement.endswith(
        "made where it enters blocks 8 to 11, an edit at any of the 12 positions reaches none of them."
    )


def test_a_block_that_one_position_misses_is_reached_from_others() -> None:
    """A convolution of three inputs keeps the last two; a choice of keys keeps some."""
    [convolution, choice] = [generation(each)["edits_of_the_prompt_reach"] for each in ("lfm2_moe", "hy_v4")]
    assert convolution.measured == {"blocks": [*range(5)], "positions_of_block_5": [10, 11]}
    assert (
        "made where it enters block 5, an edit reaches the logits only at positions 10 and 11" in convolution.statement
    )
    assert 0 < len(choice.measured["positions_of_block_5"]) < 12


def test_no_step_is_told_of_a_model_without_a_cache_or_whose_rows_mix() -> None:
    [none] = generation("openai-gpt").values()
    assert none.statement == "No step with a cache was measured: the model returns no cache."
    mixed = generation("rwkv")
    assert "step_positions" not in mixed and "the blocks return a position for each row" in mixed["no_step"].statement


def test_a_state_whose_width_is_the_number_of_positions_is_no_entry_a_position() -> None:
    """Inkling 2's convolutions hold 48 channels, as many as the longer prompt has positions."""
    facts = {fact.name: fact for fact in cache_facts(run_of("inkling2_text"))}
    keys = facts["kv_cache_bytes_per_token"].value
    assert facts["kv_cache_bytes_per_token_past_window"].value == keys * 3 / 9


def test_a_cache_with_more_entries_than_blocks_is_told_by_its_entries() -> None:
    """Dory runs two of its six blocks twice, and keeps what each pass made."""
    facts = {fact.name: fact for fact in cache_facts(run_of("dory"))}
    past = facts["kv_cache_bytes_per_token_past_window"]
    assert past.measured == {"entries": [0, 2, 4, 6], "positions": [7]}
    assert past.statement.startswith("Once entries 0, 2, 4 and 6 of the cache hold 7 positions, their part stops")


def test_what_a_cache_holds_beside_keys_and_values_is_told() -> None:
    """DeepSeek V4 stores what it compressed, MiniMax the states of linear attention in a list beside the layers."""
    compressing = {fact.name: fact for fact in cache_facts(run_of("deepseek_v4"))}
    assert compressing["kv_cache_bytes_per_token"].value == 8 * 2 * 24 * 4
    assert compressing["cache_state_bytes"].measured["blocks"] == [2, 3, 5, 7]
    past = compressing["kv_cache_bytes_per_token_past_window"].statement
    assert "keys and values stop growing" in past and "Blocks 2 to 7 hold more, which grows" in past
    assert {"rest_bytes_of_heavily_compressed_attention": [5 * 24 * 4]}.items() <= (
        generation("deepseek_v4")["cache_by_block_type"].measured.items()
    )
    assert generation("minimax")["cache_by_block_type"].measured["state_bytes_of_linear_attention"] == [6 * 16 * 16 * 4]


def test_a_cache_that_is_one_state_is_told_of_no_block() -> None:
    (state,) = (fact for fact in cache_facts(run_of("rwkv")) if fact.name == "cache_state_bytes")
    assert state.statement == "The cache holds one state of 11,520 bytes for all blocks, whatever the length."


def test_an_attention_on_the_way_to_another_sublayer_has_heads_when_only_built() -> None:
    (grouped,) = (quirk for quirk in QUIRKS if quirk.slug == "grouped-query")
    assert grouped.built is not None
    found = grouped.built(run_of("zamba2").model)
    assert (found.verdict, found.measured) == ("no", {"num_heads": 6, "num_kv_heads": 6})


def test_the_scale_of_scores_is_told_of_the_blocks_that_attend() -> None:
    (scale,) = score_scales(run_of("zamba2"))
    assert str(scale.statement).endswith("on blocks 1, 3, 5 and 7.") and scale.measured["blocks"] == [1, 3, 5, 7]


def test_cache_facts() -> None:
    facts = {fact.name: fact for fact in cache_facts(run_of("jamba"))}
    assert facts["kv_cache_bytes_per_token"].value == 2 * 2 * 2 * 16 * 4
    assert facts["cache_state_bytes"].value > 0
    assert str(facts["cache_state_bytes"].statement).startswith("Blocks 0, 1, 3 to 5 and 7 hold a state")
    facts = {fact.name: fact for fact in cache_facts(run_of("mamba"))}
    state = facts["cache_state_bytes"]
    each = int(state.value) // 3
    said = f"Every block holds a state of {each:,} bytes whatever the length, {3 * each:,} bytes together."
    assert state.statement == said and state.measured == {"blocks": [0, 1, 2], "each": each}
    assert str(facts["kv_cache_bytes_per_token"].statement).endswith("every block stores nothing a token.")
    (fact,) = cache_facts(run_of("openai-gpt"))
    assert fact.value == 0 and fact.statement == "The model returns no cache."


def test_words_of_a_run_carry_over_and_its_numbers_do_not() -> None:
    """On a published config: the twin's shapes are not its own, where positions are counted from is."""
    say = {quirk.slug: quirk.say for quirk in QUIRKS}
    found = decide("cached-otherwise", run_of("kimi_k2")).measured
    assert "(heads x width: 1 x 28 for 6 x 20)" in say["cached-otherwise"](found, [0], 1)
    words = {name: value for name, value in found.items() if isinstance(value, bool)}
    assert "(tensors of another shape)" in say["cached-otherwise"](words, [0], 1)
    found = {"counted": "(position + 1)", "step": 8192, "scale": 0.1}
    assert "⌊(position + 1) / 8192⌋" in say["attention-temperature"](found, [0], 1)


def test_the_width_of_a_cached_latent_is_the_configs() -> None:
    found = decide("cached-otherwise", run_of("deepseek_v3"))
    assert found.explained == {"latent_width": "kv_lora_rank"}
    [quirk] = [each for each in QUIRKS if each.slug == "cached-otherwise"]
    said = quirk.say({"in_the_keys_shape": False, "latent_width": 512}, [0, 1], 2)
    assert "(in the keys' place one vector of 512 numbers for all heads)" in said


@pytest.mark.parametrize(
    ("family", "pairs", "order"),
    [("qwen2_vl_text", [2, 3, 3], "side by side"), ("qwen3_vl_text", [3, 3, 2], "in turn")],
)
def test_the_pairs_of_three_streams_are_the_configs(family: str, pairs: list[int], order: str) -> None:
    found = decide("multimodal-rotary", run_of(family))
    assert (found.measured["pairs"], found.measured["order"]) == (pairs, order)
    assert found.explained == {"pairs": "rope_parameters.mrope_section"}
    [quirk] = [each for each in QUIRKS if each.slug == "multimodal-rotary" and each.about == "text"]
    said = quirk.say({"order": order, "pairs": [24, 20, 20]}, [0, 1], 2)
    assert ("24, 20 and 20 pairs a head, which take turns" in said) == (order == "in turn")


def test_one_pair_a_stream_tells_no_order() -> None:
    assert "order" not in decide("multimodal-rotary", run_of("qwen3_5_text")).measured
