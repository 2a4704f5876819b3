"""What to know of other calls: whose numbers they are, and what is said of a cache."""

from __future__ import annotations

from typing import Any

from probe.render.standing import Standing
from probe.schema import Fact
from tests.render.knowing import changed, committed, plain

LLAMA = "meta-llama--Llama-3.1-8B-Instruct"


def with_fact(page: Standing, name: str, statement: str, **measured: Any) -> Standing:
    """The page with a fact of the run behind it, and no other."""
    assert page.twin
    fact = Fact(name=name, label="Fact", value=1, measured=measured, statement=statement)
    return Standing(page.record, page.twin.model_copy(update={"facts": [fact]}), page.twin_uri, "../")


def test_a_checkpoints_page_has_its_own_numbers() -> None:
    page = committed("llama", LLAMA)
    trained = "original_max_position_embeddings"
    waves = {"kept_below": f"{trained} / high_freq_factor", "divided_beyond": f"{trained} / low_freq_factor"}
    text = plain(with_fact(page, "rotary_scaling", "", **waves, by="factor"), "know-entrance")
    assert f"below {trained} / high_freq_factor (2048) positions keeps its frequency" in text
    assert f"above {trained} / low_freq_factor (8192) has it divided by factor (8); between" in text
    page = committed("mixtral", "mistralai--Mixtral-8x7B-v0.1")
    loss = {"entry": "router_aux_loss_coef", "padding_counts": False}
    text = plain(with_fact(page, "balancing_loss", "So it is.", **loss), "know-calls")
    assert "router_aux_loss_coef (0.02) times" in text and "Padded positions do not count." in text
    assert "So it is." in plain(with_fact(page, "balancing_loss", "So it is."), "know-calls")


def test_what_depends_on_the_runs_sizes_is_said_to_be_the_twins() -> None:
    page = committed("llama", LLAMA)
    for blocks, own in (([0, 1, 2], True), ([0, 2], False), ([], True)):
        text = plain(with_fact(page, "edits_of_the_prompt_reach", "It reaches.", blocks=blocks), "know-calls")
        assert text.startswith("On the twin it reaches") != own
    for keys, own in (([13], True), ([8], False), ([8, 13], False)):
        text = plain(with_fact(page, "step_positions", "At a step.", prompt=12, keys=keys), "know-calls")
        assert text.startswith("On the twin at a step") != own
    text = plain(with_fact(page, "training_mode", "It moves logits, by up to 5."), "know-calls")
    assert text == "On the twin it moves logits, by up to 5."


def test_what_a_window_or_a_missing_cache_does_leads_to_its_quirk() -> None:
    page = committed("mistral", "mistralai--Mistral-7B-v0.1")
    for key, said in ((8, True), (7, False)):
        text = plain(with_fact(page, "step_positions", "At a step.", prompt=12, keys=[key]), "know-calls")
        assert ("A window of 8 leaves no more of them." in text) == said
    assert "returns no cache. Cache inside modules" in plain(committed("recurrent_gemma", "tiny"), "know-calls")
    assert "returns no cache. No cache" in plain(committed("openai-gpt", "tiny"), "know-calls")


def test_a_cache_is_said_to_hold_turned_keys_only_where_it_does() -> None:
    assert "those that the scores are made of, with the rotary embedding applied." in plain(
        committed("llama", LLAMA), "know-calls"
    )
    assert "those that the scores are made of." in plain(committed("gpt2", "tiny"), "know-calls")
    assert "The keys in a cache" not in plain(committed("deepseek_v3", "tiny"), "know-calls")
    assert "The keys in a cache" not in plain(committed("mamba", "tiny"), "know-calls")


def test_states_of_some_blocks_are_said_to_be_the_twins() -> None:
    page = committed("llama", LLAMA)
    for blocks, own in (([0, 1, 2], True), ([0, 2], False)):
        text = plain(with_fact(page, "states_by_steps", "Fed by steps.", blocks=blocks), "know-loading")
        assert ("Fed by steps" in text) == own and ("On the twin fed by steps" in text) != own


def test_a_return_that_is_written_to_is_told_of() -> None:
    page = committed("olmo", "tiny-clip")
    rows = [row.model_copy(update={"rewritten": row.path.endswith("q_proj")}) for row in page.record.returned]
    text = plain(changed(page, returned=rows), "know-consequences")
    assert "What model.layers.{i}.self_attn.q_proj returns is written to in place afterwards" in text


def test_biases_of_some_blocks_are_said_to_be_the_twins() -> None:
    page = committed("llama", LLAMA)
    told = "know-consequences"
    assert "The heads add a bias." in plain(with_fact(page, "last_biases", "The heads add a bias."), told)
    some = with_fact(page, "last_biases", "The heads on block 1 add a bias.", blocks=[1])
    assert "On the twin the heads on block 1 add a bias." in plain(some, told)
