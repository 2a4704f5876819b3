"""Every snippet on every page of a twin, and of the real weights that are installed, gives the probe's tensor.

The first form is what the probe itself reads by, so the other two are compared with it; an edit by its logits. What a
page of a checkpoint that was only built shows is its twin's snippet with other numbers and another id.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest
import transformers

from probe.checkpoints import real
from probe.render.catalog import Family, read
from probe.render.recipes import FORMS, Recipe
from probe.render.recipes.place import is_added
from probe.render.recipes.setup import setup
from probe.render.standing import Standing
from probe.schema import Record
from probe.store import ROOT
from tests.recipes.running import Page, snippets
from tests.summary import COUNTED

FILES = sorted((ROOT / "site_src" / "records").glob("*/*.json"))
TWINS = [path for path in FILES if path.stem.startswith("tiny")]
REAL = [("llama", "HuggingFaceTB/SmolLM2-135M-Instruct"), ("gemma3_text", "google/gemma-3-270m")]
NUMBER = re.compile(r"-?\b\d+\b")


def alone(family: str, checkpoint: str) -> object:
    """A page as a test of its own, which any process may take."""
    name = f"{family}-{checkpoint.rpartition('/')[2]}"
    return pytest.param(family, checkpoint, id=name)


@pytest.mark.parametrize(("family", "checkpoint"), [alone(*page) for page in REAL])
def test_every_snippet_runs_on_real_weights(
    family: str, checkpoint: str, record: Callable[[str, str], Record], record_property: Callable[[str, object], None]
) -> None:
    if not real.installed(checkpoint):
        pytest.skip(f"{checkpoint}: its weights come with the `real` extra, which is not installed")
    _run(Page(record(family, checkpoint)), "recipes, real weights", record_property)


@pytest.mark.parametrize(("family", "twin"), [alone(path.parent.name, path.stem) for path in TWINS])
def test_every_snippet_of_a_twin_gives_the_probes_tensor(
    family: str, twin: str, record: Callable[[str, str], Record], record_property: Callable[[str, object], None]
) -> None:
    _run(Page(record(family, twin)), "recipes", record_property)


def _run(page: Page, heading: str, record_property: Callable[[str, object], None]) -> None:
    page.run()
    assert page.wrong == []
    shown = [(row, recipe) for row, forms in page.snippets() for recipe in forms]
    whole = sum((recipe.read is not None) + (recipe.edit is not None) for _, recipe in shown)
    assert page.ran.total() == whole + sum(len(found.code) for _, found in page.slices())
    assert whole > 0
    ran = {f"{FORMS[form]} {kind}": count for (form, kind), count in page.ran.items()}
    lacks = Counter(f"in {FORMS[recipe.form]} ({recipe.lack})" for _, recipe in shown if recipe.lack)
    record_property(COUNTED, {heading: {"pages": 1, **ran}, f"{heading}, not written": dict(lacks)})


@cache
def _families() -> dict[str, Family]:
    return read(ROOT / "site_src" / "records")


def test_a_form_is_missing_for_few_values_and_an_edit_for_fewer() -> None:
    """Bounds on what the pages lack, over all twins: a fault in what writes a form would take much more away."""
    shown: Counter[str] = Counter()
    edits: Counter[str] = Counter()
    for path in TWINS:
        record = _families()[path.parent.name].stored[path.stem].record
        for row, forms in snippets(Standing(record, None)):
            shown.update(recipe.form for recipe in forms if recipe.read)
            edits.update(recipe.form for recipe in forms if recipe.edit)
            assert not forms or is_added(record, row) == bool(forms[0].edit)
    assert shown["nnsight"] >= 0.99 * shown["names"] > 0
    assert shown["pytorch"] >= 0.9 * shown["names"]
    assert edits["nnsight"] == edits["names"] > 0
    assert edits["pytorch"] >= 0.98 * edits["names"]


def test_a_page_of_a_config_shows_its_twins_snippets() -> None:
    """The code is the same but for numbers: sizes, and which block is the first that has the value."""
    compared, other = 0, []
    for family in _families().values():
        for slug, stored in family.stored.items():
            behind = stored.record.evidence
            if stored.record.checkpoint.kind != "config" or behind is None:
                continue
            twin = family.stored[behind.twin].record
            known: dict[tuple[str, str, str], set[Code]] = {}
            for row, forms in snippets(Standing(twin, None)):
                known.setdefault((row.host, row.name, row.module), set()).update(map(_code, forms))
            for row, forms in snippets(Standing(stored.record, twin)):
                compared += len(forms)
                if not {_code(recipe) for recipe in forms} <= known.get((row.host, row.name, row.module), set()):
                    other.append(f"{family.name} {slug}: {row.host}.{row.name}")
    assert compared > 0 and other == []


Code = tuple[str, ...]


def _code(recipe: Recipe) -> Code:
    """A recipe with a sign for every number."""
    return tuple(NUMBER.sub("#", text or "") for text in (recipe.form, recipe.read, recipe.edit, recipe.why))


def test_a_published_checkpoints_set_up_differs_from_another_by_id_class_and_width_alone() -> None:
    for form in FORMS:
        kinds: dict[str, set[str]] = {}
        for record in (stored.record for family in _families().values() for stored in family.pages):
            own = record.checkpoint
            if own.kind == "tiny":
                continue
            code = NUMBER.sub("#", setup(record, form).replace(own.id, "ID").replace(str(own.architecture), "CLASS"))
            # The class stands at its place by the alphabet.
            code = re.sub(
                r"(from transformers import) (.*)", lambda line: f"{line[1]} {sorted(line[2].split(', '))}", code
            )
            kinds.setdefault(f"{own.task} {record.vision is not None}", set()).add(code)
            compile(setup(record, form), own.id, "exec")
            if form == "pytorch":
                assert hasattr(transformers, str(own.architecture)), own.id
        assert kinds and {task: len(codes) for task, codes in kinds.items()} == dict.fromkeys(kinds, 1)
