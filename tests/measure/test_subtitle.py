"""The page's one sentence, composed again from committed records."""

from __future__ import annotations

import pytest

from probe import store
from probe.record.subtitle import subtitle
from probe.schema import Experiment, Record


def composed(family: str) -> str:
    record = Record.model_validate_json(store.record_path(family, "tiny").read_text())
    return subtitle(record.shapes, record.blocks, record.experiments)


@pytest.mark.parametrize(
    ("family", "said"),
    [
        (
            "mamba2",
            "Blocks of one sublayer with a norm before it; "
            "state space mixers (state-space dual) in place of attention.",
        ),
        ("bloom", "Sequential blocks with a norm before each sublayer, ALiBi."),
        ("gpt2", "Sequential blocks with a norm before each sublayer, position embeddings."),
        ("openai-gpt", "Sequential blocks that norm the stream after each add, position embeddings."),
        ("llama", "Sequential blocks with a norm before each sublayer, shared key/value heads."),
        (
            "modernbert-decoder",  # the first block's attention alone has none
            "Sequential blocks with a norm before each sublayer; full and sliding attention take turns.",
        ),
    ],
)
def test_the_main_thing_of_a_family_is_in_its_sentence(family: str, said: str) -> None:
    assert composed(family) == said


def test_mixers_are_told_by_where_they_stand() -> None:
    assert "(state-space dual) beside the attention on every block" in composed("falcon_h1")
    hybrid = composed("qwen3_next")
    assert "delta-rule mixers on" in hybrid and "of 4 blocks, attention on 2; a mixture of experts" in hybrid
    assert "(selective scan) on every block, some after an attention" in composed("zamba")
    record = Record.model_validate_json(store.record_path("rwkv", "tiny").read_text())
    assert "mixers of another kind in place of attention" in subtitle(record.shapes, record.blocks, [])
    assert "linear attention of fixed decay on 2 of 4 blocks" in composed("minimax")
    assert composed("minimax").startswith("Sequential blocks that norm the stream itself before each sublayer, ")
    ran = [
        s.model_copy(update={"recurrence": "wkv" if s.kind == "mixer" else None}) for s in record.shapes[0].sublayers
    ]
    averaged = [record.shapes[0].model_copy(update={"sublayers": ran})]
    assert "a weighted average of fixed decay" in subtitle(averaged, [0], record.experiments)
    assert "take turns" not in hybrid and "sliding and full attention take turns" in composed("cohere2")


def test_blocks_that_run_several_times_are_in_the_sentence() -> None:
    record = Record.model_validate_json(store.record_path("llama", "tiny").read_text())
    looped = Experiment(
        slug="looped-blocks", label="Looped blocks", verdict="yes", blocks=[1], statement="It runs twice."
    )
    assert "; 1 of 3 blocks runs several times in a forward" in subtitle(
        record.shapes, record.blocks, [*record.experiments, looped]
    )
