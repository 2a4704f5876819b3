"""Every block of code in the families' notes runs and its claims hold; and no note types a number a run could give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probe import registry
from probe.checkpoints import real
from probe.render.catalog import read_family
from probe.render.recipes.setup import setup
from probe.snippets.code import Block, Subject, blocks
from probe.snippets.running import run
from tests.summary import COUNTED

from .files import NOTES, ROOT
from .typed import typed_numbers

each_note = pytest.mark.parametrize("path", NOTES, ids=lambda path: path.name)


@each_note
def test_the_code_of_a_note_holds(
    path: Path, subtests: pytest.Subtests, record_property: Callable[[str, object], None]
) -> None:
    namespace: dict[str, Any] = {}
    ran, families = 0, set[str]()
    for block in blocks(path):
        held = False
        with subtests.test(str(block)):
            if block.subject.real and not real.installed(block.subject.checkpoint):
                held = True
                pytest.skip(f"{block}: its weights come with the `real` extra, which is not installed")
            run(block, namespace)
            ran += 1
            families.add(block.subject.family)
            held = True
        if not held:
            break
    record_property(COUNTED, {"notes": {"files": 1, "blocks of code run": ran, "families": sorted(families)}})


@each_note
def test_a_note_goes_on_from_what_the_snippets_of_the_page_stand_on(path: Path) -> None:
    first = blocks(path)[0]
    stored = read_family(ROOT / "site_src" / "records" / first.subject.family)
    assert stored is not None
    [record] = [s.record for s in stored.in_order if s.record.checkpoint.id == first.subject.checkpoint]
    namespace: dict[str, Any] = {"__on__": first.subject}  # so that nothing but the set-up makes model and prompt
    exec(compile(setup(record, "names"), "the set-up", "exec"), namespace)
    run(first, namespace)


@each_note
def test_every_block_of_a_note_can_fail(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = blocks(path)
    assert found and text.count("```python") == len(found)
    assert [str(block) for block in found if not block.asserts()] == []


def test_every_family_with_a_module_has_notes_and_a_tower_has_its_own() -> None:
    written = {path.name for path in NOTES}
    for family in map(registry.get, registry.modules()):
        assert f"{family.name}.md" in written
        if any("vision" in options for options in family.twins.values()):
            assert f"{family.name}.vision.md" in written


@each_note
def test_no_number_is_typed_in_prose(path: Path) -> None:
    assert typed_numbers(path.read_text(encoding="utf-8")) == []


def test_a_typed_number_is_found_and_a_sourced_one_is_not() -> None:
    assert typed_numbers("E2B has 35 blocks.") and not typed_numbers("E2B has {{ sizes.num_layers of x/y }} blocks.")
    assert not typed_numbers("One figure, reported for E2B: a KL of 0.51 [source: elsewhere].")
    assert typed_numbers("One figure, reported for E2B: a KL of 0.51. It is [cited].")


def test_a_block_knows_its_checkpoint_and_its_line() -> None:
    text = "<!-- on: tiny -->\n\n```python\nassert 1\n```\n<!-- on: org/name under sdpa -->\n```python\nassert 2\n```\n"
    path = Path("llama.md")
    assert blocks(path, text) == [
        Block(path, 4, "assert 1\n", Subject("llama", "tiny")),
        Block(path, 8, "assert 2\n", Subject("llama", "org/name", "sdpa")),
    ]
    assert not blocks(path, text)[0].subject.real and blocks(path, text)[1].subject.real
    with pytest.raises(ValueError, match=r"llama\.md"):
        blocks(path, "```python\nassert 1\n```\n")
