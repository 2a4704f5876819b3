"""The guide's code runs on families of different kinds, and what its pages show is what came out."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from probe.checkpoints import real
from probe.guide import results
from probe.guide.measure import current
from probe.guide.patterns import FOLDER, PATTERNS, REAL, SUBJECTS, Pattern
from probe.render.references import resolved
from probe.schema.guide import Outcome
from probe.snippets.code import Subject, blocks
from probe.snippets.running import run
from tests.notes.typed import typed_numbers
from tests.summary import COUNTED

Followed = Callable[[Pattern, Subject], Outcome]

SHOWN = results.read()
PAGES = sorted(FOLDER.glob("*.md"))

ENDS = {
    ("head-ablation", "jetmoe"): "no module takes the heads' outputs side by side",
    ("head-ablation", "mamba2"): "No attention of a block of mamba2 has attention_premix",
    ("steering", "openai-gpt"): "norms the stream itself",
    ("contributions", "openai-gpt"): "norms the stream itself",
}
"""Where a page's code ends early, by page and family, with words of the reason."""

each_pattern = pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.slug)
each_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)


def _same(outcome: Outcome, pattern: Pattern) -> None:
    """What came out is what the page shows, up to another machine's rounding."""
    [shown] = [
        each
        for each in SHOWN.patterns[pattern.slug].outcomes
        if (each.family, each.checkpoint) == (outcome.family, outcome.checkpoint)
    ]
    assert (outcome.ran, outcome.reason) == (shown.ran, shown.reason)
    for name, number in shown.numbers.items():
        found = outcome.numbers[name]
        assert found is None if number is None else found == pytest.approx(number, rel=1e-2, abs=2e-3), name


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.family)
@each_pattern
def test_a_page_runs_on_every_kind_of_family(
    pattern: Pattern, subject: Subject, followed: Followed, record_property: Callable[[str, object], None]
) -> None:
    outcome = followed(pattern, subject)
    early = int(outcome.reason is not None)
    counts = {"blocks of code run": outcome.ran, "families": [subject.family], "pages end early with a reason": early}
    record_property(COUNTED, {"guide": counts})
    wanted = ENDS.get((pattern.slug, subject.family))
    if wanted is None:
        assert outcome.reason is None and outcome.ran == len(blocks(pattern.path, subject=subject))
    else:
        assert outcome.reason is not None and wanted in outcome.reason
    _same(outcome, pattern)


@pytest.mark.parametrize(("slug", "subject"), [("logit-lens", REAL[0]), ("contributions", REAL[1])], ids=str)
def test_a_page_runs_on_real_weights(slug: str, subject: Subject, followed: Followed) -> None:
    """One page each; the others take minutes, and `python -m probe guide` runs them."""
    if not real.installed(subject.checkpoint):
        pytest.skip(f"the weights of {subject.checkpoint} come with the `real` extra, which is not installed")
    [pattern] = [pattern for pattern in PATTERNS if pattern.slug == slug]
    _same(followed(pattern, subject), pattern)


@each_pattern
def test_what_a_page_shows_is_of_its_code_as_it_is(pattern: Pattern) -> None:
    shown = SHOWN.patterns[pattern.slug]
    assert shown.code == pattern.digest(), "the page's code has changed: `python -m probe guide` runs it again"
    assert [Subject(each.family, each.checkpoint) for each in shown.outcomes] == [*SUBJECTS, *REAL]
    assert {drawing.checkpoint for drawing in shown.drawings} == {subject.checkpoint for subject in REAL}
    assert len([each for each in shown.outcomes if each.reason is None]) >= 5


def test_only_a_page_whose_code_or_subjects_changed_runs_again() -> None:
    subjects = [*SUBJECTS, *REAL]
    assert set(current(SHOWN, subjects)) == {pattern.slug for pattern in PATTERNS}
    older = SHOWN.patterns["steering"].model_copy(update={"code": "another"})
    changed = SHOWN.model_copy(update={"patterns": SHOWN.patterns | {"steering": older}})
    assert set(current(SHOWN, subjects)) - set(current(changed, subjects)) == {"steering"}
    assert current(SHOWN, subjects[1:]) == {}


@each_pattern
def test_every_page_asserts_and_binds_its_columns(pattern: Pattern) -> None:
    found = blocks(pattern.path, subject=REAL[0])
    assert sum(block.asserts() for block in found) >= 2
    shown = SHOWN.patterns[pattern.slug].outcomes
    assert all(any(each.numbers[name] is not None for each in shown) for name in pattern.columns)


def test_the_index_starts_as_its_code_says() -> None:
    [block] = blocks(FOLDER / "index.md")
    if not real.installed(block.subject.checkpoint):
        pytest.skip(f"the weights of {block.subject.checkpoint} come with the `real` extra, which is not installed")
    run(block, {})


@each_pattern
def test_a_page_leads_to_what_its_code_starts_with_and_its_headings_stand_alone(pattern: Pattern) -> None:
    before = pattern.path.read_text(encoding="utf-8").partition("```python")[0]
    [anchor] = re.findall(r"\(index\.md#([\w-]+)\)", before)
    headings = re.findall(r"^## (.+)$", (FOLDER / "index.md").read_text(encoding="utf-8"), re.M)
    assert anchor in [heading.lower().replace(" ", "-") for heading in headings]
    assert not any(heading.startswith("and ") for heading in pattern.columns.values())


@each_page
def test_no_number_is_typed_and_every_reference_resolves(path: Path) -> None:
    assert typed_numbers(path.read_text(encoding="utf-8")) == []
    assert "{{" not in resolved(path)
