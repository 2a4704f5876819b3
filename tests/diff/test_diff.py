"""`diff` over two folders and two revisions: what it names, what it passes over, and its status."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probe import store
from probe.cli import main
from probe.diff import git
from probe.diff.compare import compare
from probe.diff.numbers import neighbours, same, same_words
from probe.diff.rows import FACTS, same_error
from probe.diff.sources import here, source
from probe.diff.words import code, spans
from probe.errors import ProbeError
from tests.render import fixture

Record = dict[str, Any]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """The fixture's records, twice."""
    return fixture.write(tmp_path / "before"), fixture.write(tmp_path / "after")


def _edit(folder: Path, change: Callable[[Record], object], family: str = "*") -> None:
    for path in folder.glob(f"{family}/[!.]*.json"):
        data = json.loads(path.read_text())
        change(data)
        path.write_text(store.canonical(data))


def _told(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    capsys.readouterr()
    status = main(["diff", *map(str, arguments)])
    return status, capsys.readouterr().out


def test_equal_records_and_rounding_differ_in_nothing(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = folders
    assert _told(capsys, before, after)[0] == 0

    def rounded(record: Record) -> None:
        for row in record["identities"]:
            row["max_abs_error"] = row["tolerance"] / 50

    _edit(after, rounded)
    status, out = _told(capsys, before, after)
    assert status == 0 and out.startswith("No fact changed in ") and out.count("\n") == 1


def test_a_change_of_every_kind_is_named_under_its_heading(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = folders

    def changed(record: Record) -> None:
        row = next(row for row in record["values"] if row["name"] == "attention_output")
        row["location"] = "elsewhere.output"
        row["description"] = "Not told, since a fact of the row changed"
        record["identities"][0] |= {"holds": False, "reason": "It does not."}
        record["experiments"][0]["verdict"] = "inconclusive"
        record["about"]["title"] += " again"
        record["provenance"]["torch"] = "3.0"

    _edit(after, changed, "llama")
    status, out = _told(capsys, before, after)
    assert status == 1
    sections = {part.split("\n")[0]: part for part in out.split("\n### ")[1:]}
    assert "attention_output` moved: " in sections["Values"] and "→ `elsewhere.output`" in sections["Values"]
    assert "holds: yes → no" in sections["Identities"]
    assert "verdict: " in sections["Quirks"] and "→ inconclusive" in sections["Quirks"]
    assert "again" in sections["Wording"] and "Not told" not in out
    provenance = out.partition("## Provenance")[2]
    assert "`torch`" in provenance and "torch" not in out.partition("## Provenance")[0]
    assert out.startswith("1 family changed; ")


def test_families_and_checkpoints_that_came_and_went(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = folders
    shutil.rmtree(before / "llama")
    shutil.rmtree(after / "gemma4_text")
    first = sorted((after / "llama4_text").glob("*.json"))[0]
    gone = json.loads(first.read_text())["checkpoint"]["id"]
    first.unlink()
    status, out = _told(capsys, before, after)
    added, lost = out.partition("## Families added")[2].partition("## Families lost")[::2]
    assert status == 1 and "`llama`" in added and "`gemma4_text`" in lost.partition("## ")[0]
    assert f"`{gone}` has no record any more" in out


def test_what_several_checkpoints_share_is_told_once(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = folders
    for folder in folders:
        first = sorted((folder / "llama").glob("*.json"))[0]
        copy = json.loads(first.read_text())
        copy["checkpoint"]["id"] = "org/copy"
        (first.parent / "org--copy.json").write_text(store.canonical(copy))
    _edit(after, lambda record: record["sizes"].update(head_dim=7), "llama")
    out = _told(capsys, before, after)[1]
    records = len(list((after / "llama").glob("*.json")))
    assert out.count("sizes.head_dim") == 1 and f"(all {records} checkpoints)" in out


def test_revisions_are_read_from_git(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*command: str) -> None:
        subprocess.run(["git", *command], cwd=tmp_path, check=True, capture_output=True)

    run("init", "-q", "-b", "main")
    run("config", "user.email", "a@b.c")
    run("config", "user.name", "A")
    records = fixture.write(tmp_path / git.RECORDS)
    run("add", ".")
    run("commit", "-q", "-m", "first")
    monkeypatch.setattr(store, "ROOT", tmp_path)
    monkeypatch.setenv("PROBE_RECORDS", str(records))
    assert _told(capsys, "main")[0] == 0
    _edit(records, lambda record: record["sizes"].update(head_dim=7), "llama")
    assert _told(capsys, "main")[0] == 1
    run("commit", "-q", "-a", "-m", "second")
    status, out = _told(capsys, "main~1", "main")
    assert status == 1 and "`sizes.head_dim`: " in out and "1 family changed" in out
    assert _told(capsys, "main")[0] == 0
    assert _told(capsys, "main", tmp_path)[0] == 0  # a checkout is taken for its records
    assert _told(capsys, tmp_path, "main~1")[0] == 1
    with pytest.raises(ProbeError, match=r"neither a revision .* nor a folder of records; name one of either"):
        source("nosuch")
    run("clone", "-q", "--depth", "1", f"file://{tmp_path}", "shallow")
    monkeypatch.setattr(store, "ROOT", tmp_path / "shallow")
    with pytest.raises(ProbeError, match="fetch --unshallow"):
        source("main~1")


def test_a_folder_of_records_that_is_missing_is_told_by_what_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROBE_RECORDS", str(tmp_path / "gone"))
    with pytest.raises(ProbeError, match="gone; PROBE_RECORDS names it: name another, or unset it"):
        here()
    monkeypatch.delenv("PROBE_RECORDS")
    monkeypatch.setattr(store, "ROOT", tmp_path)
    with pytest.raises(ProbeError, match="`python -m probe --all` makes it"):
        here()


def test_a_key_that_no_rule_knows_is_a_fact() -> None:
    record = fixture.records()[0].as_json()
    other = json.loads(json.dumps(record))
    other["values"][0]["later"] = {"key": 1}
    other["novel"] = [1]
    assert sorted(change.subject for change in compare(record, other)) == sorted(
        [f"`{record['values'][0]['host']}.{record['values'][0]['name']}`", "`novel`"]
    )


@pytest.mark.parametrize(
    ("before", "after", "equal"),
    [
        (8, 9, False),
        (8.0, 9.0, False),
        (0.3536, 0.3537, True),
        (0.3536, 0.36, False),
        (0.28, 0.29, True),
        (0.28, 0.31, False),
        (7e-07, 3e-09, True),
        (0.0, 0.2, False),
        (True, 1, False),
        ("1", 1, False),
        ([1.0, 2.0], [1.0], False),
        ({"a": 0.3536}, {"a": 0.3537}, True),
        ({"a": 1}, {"b": 1}, False),
        (None, 0.0, False),
    ],
)
def test_which_numbers_are_the_same_fact(before: object, after: object, equal: bool) -> None:
    assert same(before, after) is equal and same(after, before) is equal


def test_numbers_in_sentences_are_numbers() -> None:
    assert same_words("by 0.3536 on blocks 1–3", "by 0.3537 on blocks 1–3")
    assert not same_words("by 0.3536 on blocks 1–3", "by 0.3536 on blocks 1–4")
    assert not same_words("80,592 parameters", "80,593 parameters")
    assert not same_words("q_proj moves it by 2", "k_proj moves it by 2")
    assert neighbours(7.0, 8.0) and neighbours(0.9, 1.0) and not neighbours(1.0, 0.2) and not neighbours(0.0, 3.0)


@pytest.mark.parametrize(
    ("before", "after", "equal"),
    [(0.0, 1e-06, True), (3e-06, 2e-05, True), (1e-06, 9e-05, False), (0.0, 2e-04, False), (0.2, 0.2, True)],
)
def test_an_error_counts_against_its_tolerance(before: float, after: float, equal: bool) -> None:
    one, other = ({"max_abs_error": error, "tolerance": 1e-04} for error in (before, after))
    assert same_error(one, other) is equal and same_error(other, one) is equal


def test_a_yes_that_was_told_as_a_number_is_the_same_fact() -> None:
    before, after = ({"facts": [{"name": "novel", "label": "novel", "value": value}]} for value in (1, True))
    assert list(compare(before, after)) == []
    after["facts"][0]["value"] = False
    assert [(c.before, c.after) for c in compare(before, after)] == [("`1`", "no")]


def test_blocks_and_code_in_words() -> None:
    assert (spans([3]), spans([]), spans([5, 0, 1, 2])) == ("block 3", "no block", "blocks 0–2, 5")
    assert code("a `b`") == "`` a `b` ``" and code("two\nlines") == "`two lines`"


@pytest.mark.parametrize("value, said", [(True, "yes"), (False, "no"), (1, "1 block"), (3, "3 blocks")])
def test_a_fact_that_appeared_is_told_as_its_page_does(value: bool | int, said: str) -> None:
    assert FACTS.brief({"value": value, "unit": None if isinstance(value, bool) else "blocks"}) == said
