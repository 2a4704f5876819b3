"""What to know of other calls: whose numbers they are, and what is said of a cache."""

from __future__ import annotations

from probe.render.standing import Standing
from probe.schema import Fact
from tests.render.knowing import changed, committed, plain

LLAMA = "meta-llama--Llama-3.1-8B-Instruct"


def with_fact(page: Standing, name: str, statement: str) -> Standing:
    """The page with a fact of the run behind it, and no other."""
    assert page.twin
    fact = Fact(name=name, label="Fact", value=1, statement=statement)
    return Standing(page.record, page.twin.model_copy(update={"facts": [fact]}), page.twin_uri, "../")


def test_a_checkpoints_page_has_its_own_numbers() -> None:
    page = committed("llama", LLAMA)
    said = "Within `original_max_position_embeddings` / `high_freq_factor` positions; then divided by `factor`."
    text = plain(with_fact(page, "rotary_scaling", said), "know-entrance")
    assert "original_max_position_embeddings / high_freq_factor (2048) positions; then divided by factor (8)" in text
    said = "The loss has `router_aux_loss_coef` (0.5) times `aux_loss` in it."
    text = plain(with_fact(committed("mixtral", "mistralai--Mixtral-8x7B-v0.1"), "balancing_loss", said), "know-calls")
    assert "router_aux_loss_coef (0.02) times" in text


def test_what_depends_on_the_runs_sizes_is_said_to_be_the_twins() -> None:
    page = committed("llama", LLAMA)
    for said, own in (
        ("It reaches every block.", True),
        ("It reaches blocks 0 and 2.", False),
        ("It reaches every block; where it enters block 1, it reaches none.", False),
    ):
        text = plain(with_fact(page, "edits_of_the_prompt_reach", said), "know-calls")
        assert text.startswith("On the twin it reaches") != own
    text = plain(with_fact(page, "training_mode", "It moves logits, by up to 5."), "know-calls")
    assert text == "On the twin it moves logits, by up to 5."


def test_a_cache_is_said_to_hold_turned_keys_only_where_it_does() -> None:
    assert "those that the scores are made of, turned already." in plain(committed("llama", LLAMA), "know-calls")
    assert "those that the scores are made of." in plain(committed("gpt2", "tiny"), "know-calls")
    assert "The keys in a cache" not in plain(committed("deepseek_v3", "tiny"), "know-calls")
    assert "The keys in a cache" not in plain(committed("mamba", "tiny"), "know-calls")


def test_a_return_that_is_written_to_is_told_of() -> None:
    page = committed("olmo", "tiny-clip")
    rows = [row.model_copy(update={"rewritten": row.path.endswith("q_proj")}) for row in page.record.returned]
    text = plain(changed(page, returned=rows), "know-consequences")
    assert "What model.layers.{i}.self_attn.q_proj returns is written to in place afterwards" in text
