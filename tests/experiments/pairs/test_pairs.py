"""Every experiment on a pair of twins that differ in its property, and on mutants that a check of flags or names gets
wrong.

The tables are the modules of the folder ``tables``, each with ``PAIRS``; they are found by themselves.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from probe.experiments import QUIRKS
from tests.experiments.pairs.build import Mutant, Pair, decide, native

TABLES = sorted(path.stem for path in (Path(__file__).parent / "tables").glob("*.py"))

PAIRS: list[Pair] = [
    pair for name in TABLES for pair in importlib.import_module(f"tests.experiments.pairs.tables.{name}").PAIRS
]

MUTANTS = [(pair, mutant) for pair in PAIRS for mutant in pair.mutants]


def test_every_quirk_has_its_pair_and_a_mutant() -> None:
    paired = [(pair.about, pair.slug) for pair in PAIRS]
    assert len(paired) == len(set(paired)), "two pairs for one quirk"
    assert set(paired) == {(quirk.about, quirk.slug) for quirk in QUIRKS}
    assert all(pair.mutants for pair in PAIRS)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_twins_that_differ_in_the_property(pair: Pair) -> None:
    assert pair.yes != pair.no
    assert (decide(pair, pair.yes).verdict, decide(pair, pair.no).verdict) == ("yes", "no")


@pytest.mark.parametrize(("pair", "mutant"), MUTANTS, ids=[f"{pair}-{mutant.why}" for pair, mutant in MUTANTS])
def test_a_mutant_that_its_config_or_class_names_belie(pair: Pair, mutant: Mutant) -> None:
    assert mutant.twin.mutated
    for twin, answer in ((pair.yes, True), (pair.no, False)):
        if not twin.mutated:
            assert mutant.naive(native(twin)) is answer, "the naive check is wrong on a twin that nothing mutates"
    assert mutant.naive(native(mutant.twin)) is not (mutant.answer == "yes"), "the naive check is right"
    found = decide(pair, mutant.twin)
    assert found.verdict == mutant.answer, found
    if mutant.blocks is not None:
        assert found.blocks == mutant.blocks
    for name, number in mutant.measured.items():
        assert found.measured[name] == pytest.approx(number, rel=1e-3), name
