"""Records on disk are whole ones at every moment of a write."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

WRITE = """
import os, signal, sys
from pathlib import Path
from probe import store

call, count, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
real, seen = getattr(os, call), 0

def fatal(*arguments):
    global seen
    seen += 1
    if seen == count:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)

setattr(os, call, fatal)
store.write_all({folder / f"{name}.json": "new " * 50_000 for name in "ab"})
"""


@pytest.mark.parametrize(("call", "count"), [("fsync", 1), ("fsync", 2), ("replace", 1), ("replace", 2)])
def test_a_kill_while_writing_leaves_whole_files(tmp_path: Path, call: str, count: int) -> None:
    for name in "ab":
        (tmp_path / f"{name}.json").write_text("old")
    command = [sys.executable, "-c", WRITE, call, str(count), str(tmp_path)]
    assert subprocess.run(command, cwd=ROOT).returncode == -signal.SIGKILL
    written = [(tmp_path / f"{name}.json").read_text()[:3] for name in "ab"]
    assert written == (["new", "old"] if (call, count) == ("replace", 2) else ["old", "old"])
    assert {len((tmp_path / f"{name}.json").read_text()) for name in "ab"} <= {3, 200_000}
