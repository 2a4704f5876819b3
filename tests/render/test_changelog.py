"""The page of changes: facts commit by commit, in a whole history, in a shallow one, and where there is none."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from probe import store
from probe.render import changelog
from probe.render.changelog import changes
from probe.render.templating import render
from tests.render import fixture


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def edited(path: Path, change: Any) -> None:
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A repository in which records appear, change a fact, then only a description."""
    folder = tmp_path / "project"
    records = folder / "site_src" / "records"
    records.mkdir(parents=True)
    fixture.write(records)
    git(folder, "init", "-q")

    def commit(subject: str) -> None:
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", subject)

    commit("Records")
    path = next((records / "llama").glob("*.json"))
    edited(path, lambda record: record["sizes"].update(num_heads=77))
    commit("Heads are counted otherwise")
    edited(path, lambda record: record["values"][0].update(description="In other words"))
    commit("Other words")
    return folder


def test_commits_that_changed_a_fact_are_told(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "ROOT", history)
    page = changes(history / "site_src" / "records", {"llama"})
    assert [commit.subject for commit in page.commits] == ["Heads are counted otherwise", "Records"]
    [family] = page.commits[0].families
    assert family.title == "Llama" and family.url == "../llama/" and "`77`" in family.lines[0][0]
    assert page.ends == "Nothing is older."
    assert "<code>77</code>" in render(page)


def test_what_many_families_share_is_told_once(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "ROOT", history)
    monkeypatch.setattr(changelog, "OPEN", 0)
    [own, *_] = changes(history / "site_src" / "records", {"llama"}).commits
    assert own.folded and own.families and not own.shared
    monkeypatch.setattr(changelog, "SHARED", 1)
    [shared, *_] = changes(history / "site_src" / "records", {"llama"}).commits
    assert shared.shared == [(sentence, 1) for sentence, _ in own.families[0].lines]
    assert shared.families == [] and not shared.folded


def test_a_shallow_copy_says_that_it_ends(history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "clone", "-q", "--depth", "2", f"file://{history}", "shallow")
    monkeypatch.setattr(store, "ROOT", tmp_path / "shallow")
    page = changes(tmp_path / "shallow" / "site_src" / "records", set())
    assert page.commits == [] and "last commits only" in page.ends
    git(tmp_path, "clone", "-q", "--depth", "3", f"file://{history}", "deeper")
    monkeypatch.setattr(store, "ROOT", tmp_path / "deeper")
    page = changes(tmp_path / "deeper" / "site_src" / "records", set())
    assert [commit.families[0].url for commit in page.commits if commit.families] == [None]


def test_without_a_history_the_page_says_so(history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not the repository’s own" in changes(tmp_path, set()).ends
    bare = tmp_path / "bare"
    (bare / "site_src").mkdir(parents=True)
    (history / "site_src" / "records").rename(bare / "site_src" / "records")
    monkeypatch.setattr(store, "ROOT", bare)
    page = changes(bare / "site_src" / "records", set())
    assert page.commits == [] and "no history" in page.ends
