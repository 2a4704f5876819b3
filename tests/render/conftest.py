"""The site of the fixture's records, built once for all tests of the renderer, by the command a person runs."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.render import fixture

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Site:
    records: Path
    directory: Path

    def page(self, uri: str) -> str:
        return (self.directory / uri / "index.html").read_text()


def render(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs ``python -m probe.render`` in the project."""
    return subprocess.run(
        [sys.executable, "-m", "probe.render", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    records = fixture.write(tmp_path_factory.mktemp("records"))
    directory = tmp_path_factory.mktemp("site")
    notes = fixture.write_notes(tmp_path_factory.mktemp("notes"))
    done = render("build", "--records", str(records), "--site", str(directory), PROBE_NOTES=str(notes))
    assert done.returncode == 0, done.stderr
    return Site(records, directory)
