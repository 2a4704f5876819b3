"""What to know: the four questions are answered on every page, in whole sentences."""

from __future__ import annotations

import re

from probe.render.know import what_to_know
from probe.render.know.subject import Subject
from probe.render.standing import Standing
from probe.render.text import row_id
from tests.render.knowing import COMMITTED, FIXTURE, changed, committed, every_page, plain

ASKED = ("know-adding", "know-lens", "know-blocks", "know-loading")


@every_page
def test_the_four_questions_are_answered(page: Standing) -> None:
    topics = {topic.id: topic for topic in what_to_know(page)}
    for name in ASKED:
        assert topics[name].sentences, name


@every_page
def test_sentences_are_whole_and_their_links_lead_to_rows(page: Standing) -> None:
    rows = {row_id(value, page.record.values) for value in page.record.values}
    for topic in what_to_know(page):
        for sentence in topic.sentences:
            text = re.sub(r"<a class=\"by\".*?</a>", "", sentence)
            text = re.sub(r"<[^>]+>", "", text).strip()
            assert text.endswith((".", "…")), text
            assert "  " not in text and " ." not in text and " ," not in text, text
            assert not re.search(r"\bNone\b(?!:)|(by|at|of|±) ?none\b|\{(?!i\}|num_hidden_layers)", text), text
            assert sentence.count("<code>") == sentence.count("</code>")
            for target in re.findall(r'href="#(v-[^"]+)"', sentence):
                assert target in rows


@every_page
def test_a_page_behind_which_nothing_ran_claims_no_measurement(page: Standing) -> None:
    if page.run is None:
        text = plain(page, "know-adding") + plain(page, "know-lens")
        assert "No run stands behind this page" in text and "not measured" in text
        assert "In the run" not in text and "In the twin's run" not in text and "exact:" not in text


def test_every_quirk_that_holds_is_told_once() -> None:
    for _, _, page in COMMITTED:
        said = [s for topic in what_to_know(page) for s in topic.sentences]
        for slug in Subject(page).quirks:
            assert sum(f"quirks/{slug}/" in sentence for sentence in said) <= 1, slug


def test_blocks_of_no_one_step_are_given_by_their_ends() -> None:
    """Not by their first two, from which a reader would go on to blocks that are not meant."""
    page = FIXTURE[0][2]
    subject = Subject(changed(page, blocks=[0] * 52))
    assert subject.briefly(range(3, 52, 4)) == "blocks 3, 7, … 51 (every 4th)"
    uneven = [*range(0, 18, 2), *range(19, 34, 2), *range(36, 51, 3)]
    assert subject.briefly(uneven) == f"{len(uneven)} of 52 blocks: the first is 0, the last 48"


def test_what_bites_first_comes_first() -> None:
    ids = [topic.id for topic in what_to_know(committed("llama", "tiny"))]
    assert ids[:5] == ["know-adding", "know-consequences", "know-loading", "know-blocks", "know-lens"]
