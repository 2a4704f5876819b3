"""Verdicts of real weights beside those of their twin, where the two differ."""

from __future__ import annotations

from typing import Any

import pytest

from probe.render import sections
from probe.render.second import likest, second
from probe.render.standing import Standing
from probe.render.templating import render
from probe.schema import Experiment, Record
from tests.render import fixture
from tests.render.fixture.parts import experiment

WEIGHTS = Record.model_validate(fixture.llama())
DEPTH = len(WEIGHTS.blocks)
SLUG = WEIGHTS.experiments[0].slug


def twin(name: str, verdict: str, blocks: list[int] | None, **config: Any) -> Record:
    """The fixture's record as one of a tiny twin of the same depth, with one experiment."""
    told = experiment(SLUG, "Grouped-query attention", "S.", blocks or []) | {"verdict": verdict, "blocks": blocks}
    rows = [
        row if row.name not in config else row.model_copy(update={"value": config[row.name]}) for row in WEIGHTS.config
    ]
    checkpoint = WEIGHTS.checkpoint.model_copy(update={"kind": "tiny", "id": name})
    changed = {"checkpoint": checkpoint, "experiments": [Experiment.model_validate(told)], "config": rows}
    return WEIGHTS.model_copy(update=changed)


@pytest.mark.parametrize(
    ("verdict", "blocks", "told"),
    [
        ("yes", list(range(DEPTH)), ""),
        ("no", [], "tiny, no"),
        ("yes", [0, 1], "tiny, yes on blocks 0–1"),
        ("inconclusive", None, "tiny, inconclusive"),
    ],
)
def test_the_page_tells_the_other_verdict(verdict: str, blocks: list[int] | None, told: str) -> None:
    other = twin("tiny", verdict, blocks)
    assert second(WEIGHTS.experiments[0], WEIGHTS, other, vision=False) == told
    html = render(sections.experiments(Standing(WEIGHTS, None, alike=other)))
    assert ("answer otherwise: " + told in html) if told else "answer otherwise" not in html


def test_the_same_share_of_a_type_of_block_is_the_same_answer() -> None:
    short = twin("tiny", "yes", [0]).model_copy(update={"layer_types": ["full_attention"], "blocks": [0]})
    assert second(WEIGHTS.experiments[0], WEIGHTS, short, vision=False) == ""


def test_the_likest_twin_stands_beside_real_weights_only() -> None:
    near, far = twin("tiny-z", "yes", [0]), twin("tiny-a", "yes", [0], tie_word_embeddings=False)
    assert likest(WEIGHTS, [far, near, WEIGHTS]) is near
    assert likest(near, [far]) is None and likest(WEIGHTS, [WEIGHTS]) is None
