"""The command `draft`: the module on stdout, everything else on stderr, a mistake in one sentence."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from tests.cli.conftest import World


@pytest.fixture(autouse=True)
def drafting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the side that needs torch."""
    made: Any = types.ModuleType("probe.drafting.runs")
    made.run = lambda known, twin, say: f"{known.name}/{twin}"
    made.source = lambda known, runs: f"TITLE = {known.title!r}  # {', '.join(runs)}\n"
    monkeypatch.setitem(sys.modules, "probe.drafting.runs", made)


@pytest.fixture
def table(world: World) -> World:
    """A family that has two twins and no module."""
    (world.families / "families.tsv").write_text(
        "model_type\tclass\tgroup\twrapper\ttitle\tcheckpoints\ngamma\tGammaForCausalLM\ttext\t\tGamma\t\n"
    )
    (world.families / "twins.json").write_text('{"gamma": {"tiny": null, "tiny-two": null}}')
    return world


@pytest.mark.parametrize(
    ("arguments", "runs"), [([], "gamma/tiny, gamma/tiny-two"), (["--twin", "tiny-two"], "gamma/tiny-two")]
)
def test_the_module_alone_is_printed(table: World, arguments: list[str], runs: str) -> None:
    result = table.run("draft", "gamma", *arguments)
    assert (result.status, result.out) == (0, f"TITLE = 'Gamma'  # {runs}\n")
    assert f"gamma · {runs.split('/')[-1]} (" in result.err and "has a module" not in result.err


def test_a_family_with_a_module_is_drafted_to_compare(table: World) -> None:
    result = table.run("draft", "alpha_text")
    assert (result.status, result.out) == (0, "TITLE = 'Alpha'  # alpha_text/tiny\n")
    assert "alpha_text has a module," in result.err.splitlines()[0] and "to compare it with" in result.err


def test_the_file_that_a_shell_has_opened_for_the_draft_is_no_module(table: World) -> None:
    (table.families / "gamma.py").write_text("")
    result = table.run("draft", "gamma")
    assert result.status == 0 and "has a module" not in result.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["gama"], "There is no family 'gama' (nearest: gamma"),
        (
            ["gamma", "--twin", "tiny-three"],
            "no twin 'tiny-three' that is made for every decoder; it has tiny, tiny-two",
        ),
        ([], "FAMILY"),
    ],
)
def test_a_mistake_ends_with_one_sentence(table: World, arguments: list[str], sentence: str) -> None:
    result = table.run("draft", *arguments)
    assert (result.status, result.out) == (2, "")
    assert sentence in result.err and result.err.count("\n") == 1
