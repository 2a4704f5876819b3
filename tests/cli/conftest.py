"""A command line with stand-ins for torch's side, in folders of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from probe import registry
from probe.cli import main
from tests.cli import fakes
from tests.conftest import ROOT


@dataclass
class Result:
    status: int
    out: str
    err: str


def _hears_interrupts() -> None:
    """A job that a shell put in the background ignores SIGINT, and so would what it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass
class World:
    folder: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def families(self) -> Path:
        return self.folder / "families"

    def run(self, *arguments: str) -> Result:
        """Run in this process."""
        self.capsys.readouterr()
        try:
            status = main(arguments)
        except SystemExit as end:
            status = int(end.code or 0)
        return Result(status, *self.capsys.readouterr())

    def start(self, *arguments: str, **settings: Any) -> subprocess.Popen[str]:
        """Run as a program of its own, in a process group of its own."""
        settings.setdefault("preexec_fn", _hears_interrupts)
        return subprocess.Popen(
            [sys.executable, "-m", "tests.cli.fake_main", *arguments],
            cwd=ROOT, env={**os.environ, "FAKE_FAMILIES": str(self.families)}, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings,
        )  # fmt: skip

    def finish(self, *arguments: str) -> Result:
        """Run as a program of its own, to its end: several families are probed in processes of their own."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=60)
        return Result(process.returncode, out, err)

    def probed(self) -> list[str]:
        """What was probed since the last call."""
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.write_text("")
        return lines

    def records(self) -> dict[str, bytes]:
        """Every file beside the records, hidden ones too."""
        folder = self.folder / "records"
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    monkeypatch.setenv("PROBE_RECORDS", str(tmp_path / "records"))
    monkeypatch.setenv("PROBE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    for name in ("HF_HUB_OFFLINE", "PROBE_THREADS"):  # set by the command line; unset again after the test
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name in ("probe.checkpoints", "probe.checkpoints.factory", "probe.measure", "probe.record"):
        monkeypatch.setitem(sys.modules, name, sys)
    monkeypatch.setattr(registry, "FAMILIES", registry.FAMILIES)
    fakes.plant(tmp_path / "families")
    fakes.install(tmp_path / "families")
    return World(tmp_path, capsys)
