"""A record as a run gives it, measured once, and the command line over folders of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from probe import jobs, store
from probe.cli import main

FAMILY, TWIN = "llama", "tiny"


@pytest.fixture(scope="session")
def measured() -> str:
    """The text of the record that a run of one twin gives."""
    from probe.checkpoints import targets

    [target] = [target for target in targets(FAMILY) if target.id == TWIN]
    jobs.prepare(jobs.Options())
    [(_, [outcome])] = jobs.run([[jobs.Job(FAMILY, TWIN, target)]], jobs.Options(), jobs.Crew())
    assert outcome.text is not None, outcome.message
    return outcome.text


@dataclass
class Desk:
    """Records in a folder of their own, and the command line over them.

    Attributes:
        runs: the checkpoints that were measured since the start; the run itself is the one of `measured`.
    """

    folder: Path
    text: str
    runs: list[str]
    capsys: pytest.CaptureFixture[str]

    @property
    def record(self) -> Path:
        return self.folder / FAMILY / f"{TWIN}.json"

    def edit(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Edit the record by hand."""
        data = json.loads(self.record.read_text())
        change(data)
        self.record.write_text(store.canonical(data))

    def run(self, *arguments: str) -> tuple[int, str, str]:
        self.capsys.readouterr()
        status = main(arguments)
        return status, *self.capsys.readouterr()


@pytest.fixture
def desk(
    tmp_path: Path, measured: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Desk]:
    monkeypatch.setenv("PROBE_RECORDS", str(tmp_path / "records"))
    monkeypatch.setenv("PROBE_CACHE", str(tmp_path / "cache"))
    made = Desk(tmp_path / "records", measured, [], capsys)

    def measure(job: jobs.Job, options: jobs.Options, progress: Any = None) -> jobs.Outcome:
        made.runs.append(job.checkpoint)
        return jobs.Outcome(job, made.text)

    monkeypatch.setattr(jobs, "_probe", measure)
    made.record.parent.mkdir(parents=True)
    made.record.write_text(measured)
    yield made
