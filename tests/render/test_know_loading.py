"""What to know of loading: what another attention, dtype or padding changes."""

from __future__ import annotations

from probe.render.standing import Standing
from probe.schema import Fact
from tests.render.knowing import changed, committed, plain


def test_what_needs_another_load_is_told_with_the_reason() -> None:
    text = plain(committed("llama", "tiny"), "know-loading")
    assert "Under the default sdpa, attention_scores and attention_probabilities cannot be read: the" in text
    assert "attn_implementation='eager'" in text and "differ by at most" in text
    page = committed("llama", "tiny")
    values = [v.model_copy(update={"needs": None, "reason": None}) for v in page.record.values]
    assert "Nothing is withheld" in plain(changed(page, values=values), "know-loading")


def test_facts_that_no_quirk_tells_are_told_where_they_matter() -> None:
    names = (
        "half_dtypes",
        "norm_rounding",
        "half_embedding_factor",
        "left_padding",
        "attention_masks",
        "expert_weights",
    )
    facts = [Fact(name=name, label=name, value=1, statement=f"So it is with {name}.") for name in names]
    page = changed(committed("gemma2", "tiny"), facts=facts)
    assert "So it is with half_dtypes. So it is with norm_rounding." in plain(page, "know-loading")
    assert "So it is with left_padding. So it is with attention_masks." in plain(page, "know-loading")
    assert "So it is with half_embedding_factor." in plain(page, "know-entrance")
    assert "So it is with expert_weights." in plain(page, "know-machinery")
    behind = committed("gemma", "google--gemma-2b-it")
    assert behind.twin is not None
    of_twin = Standing(behind.record, behind.twin.model_copy(update={"facts": facts}), behind.twin_uri, "../")
    assert "On the twin, whose stream is 96 wide, so it is with half_embedding" in plain(of_twin, "know-entrance")


def test_two_attentions_that_compute_different_things_are_not_called_rounding() -> None:
    page = committed("llama", "tiny")
    assert "no rounding" not in plain(page, "know-loading")
    for name, value, told in [
        ("eager_sdpa", 0.5, "a default load and an eager one compute different things, and"),
        ("eager_sdpa_padded", 0.5, "compute different things in a padded batch"),
    ]:
        facts = [f.model_copy(update={"value": value}) if f.name == name else f for f in page.record.facts]
        assert told in plain(changed(page, facts=facts), "know-loading")
    none = [f.model_copy(update={"value": 0.0}) if f.name.startswith("eager_sdpa") else f for f in page.record.facts]
    assert "give the same logits" in plain(changed(page, facts=none), "know-loading")
