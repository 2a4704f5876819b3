"""Folders that cannot be written: one sentence, before anything is probed, and the records as they were."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from probe import store
from probe.errors import ProbeError
from tests.cli.conftest import World
from tests.conftest import ROOT

READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
"""Makes the folder of its first argument read-only and runs the rest, in a namespace of its own."""


def _without_writing(folder: Path, *command: str) -> list[str]:
    inside = ["unshare", "--map-root-user", "--mount", "sh", "-c", READ_ONLY, str(folder)]
    if subprocess.run([*inside, "true"], capture_output=True).returncode != 0:
        pytest.skip("this user may not mount anything, so no file system can be made read-only")
    return [*inside, *command]


@pytest.mark.parametrize("name", ["records", "cache"])
def test_a_read_only_file_system_is_found_before_the_probe(world: World, name: str) -> None:
    world.run("alpha_text")
    leftover = world.folder / "records" / "alpha_text" / ".tiny.json.999999999.tmp"
    leftover.write_text("what a killed run left")
    before, _ = world.records(), world.probed()
    command = _without_writing(
        world.folder / name, sys.executable, "-m", "tests.cli.fake_main", "alpha_text", "--force"
    )
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "FAKE_FAMILIES": str(world.families)}, capture_output=True, text=True
    )
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "(Read-only file system)" in done.stderr and f"PROBE_{name.upper()}" in done.stderr
    assert world.probed() == []
    if name == "cache":
        before.pop("alpha_text/.tiny.json.999999999.tmp")
    assert world.records() == before


@pytest.mark.parametrize("name", ["PROBE_RECORDS", "PROBE_CACHE"])
def test_a_folder_that_is_a_file_is_found_before_the_probe(
    world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world.folder / "file").write_text("")
    monkeypatch.setenv(name, str(world.folder / "file"))
    result = world.run("alpha_text")
    assert result.status == 2 and name in result.err and len(result.err.splitlines()) == 1
    assert world.probed() == []


def test_a_check_leaves_nothing_behind(tmp_path: Path) -> None:
    store.require_writable(tmp_path / "new" / "folder")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("code", "says"), [(errno.EROFS, "Read-only"), (errno.ENOSPC, "no room left")])
def test_what_the_system_refuses_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, says: str) -> None:
    def refuses(*given: Any, **more: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuses)
    with pytest.raises(ProbeError, match=says):
        store.require_writable(tmp_path)
