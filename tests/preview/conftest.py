"""A throw-away repository of this project with one family, one twin and its record, all committed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT, find_chromium

PARTS = (
    "probe",
    "scripts",
    "site_src",
    "templates",
    "mkdocs.yml",
    "CITATION.cff",
    "pyproject.toml",
    "constraints.txt",
    ".gitignore",
)
CONFIG = "meta-llama__Llama-3.1-8B-Instruct"


@dataclass(frozen=True)
class Repository:
    """A repository whose environment is that of these tests."""

    folder: Path
    home: Path

    @property
    def module(self) -> Path:
        return self.folder / "families" / "llama.py"

    def run(self, *command: str, status: int | None = 0) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "VENV": str(self.home / "venv"),
            "CHROMIUM": find_chromium() or "",
            "PROBE_CACHE": str(self.home / "cache"),
            "OMP_NUM_THREADS": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
        }
        for name in ("PROBE_RECORDS", "PROBE_NOTES", "SITE_URL", "PYTHONPATH"):
            environment.pop(name, None)
        done = subprocess.run(
            command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert status is None or done.returncode == status, done.stdout + done.stderr
        return done

    def python(self, *arguments: str, status: int | None = 0) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, *arguments, status=status)

    def git(self, *arguments: str) -> str:
        return self.run("git", "-c", "user.name=A", "-c", "user.email=a@b.c", *arguments).stdout

    def edit(self, old: str, new: str) -> None:
        """Change the family's module."""
        text = self.module.read_text()
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the module"
        self.module.write_text(text.replace(old, new))


def _environment(folder: Path) -> None:
    """What the scripts take for an environment that has everything: this one."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "bin" / "python").chmod(0o755)
    both = (ROOT / name for name in ("pyproject.toml", "constraints.txt"))
    stamp = subprocess.run(["sha256sum"], input=b"".join(path.read_bytes() for path in both), capture_output=True)
    for extra in ("site", "probe", "test", "real"):
        (folder / f".has-{extra}").write_text(f"{stamp.stdout.decode().split()[0]}\n")


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    home = tmp_path_factory.mktemp("home")
    _environment(home / "venv")
    repository = Repository(home / "repository", home)
    common = shutil.ignore_patterns("__pycache__", "*_text", "llama", ".*")

    def skipped(folder: str, names: list[str]) -> set[str]:
        """The guide's pages speak of families that are not here."""
        return common(folder, names) | {
            name for name in names if folder.endswith("guide") and name.endswith(".md") and name != "index.md"
        }

    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, repository.folder / part, ignore=skipped if part == "site_src" else None)
        else:
            shutil.copy(ROOT / part, repository.folder / part)
    configs = repository.folder / "families" / "configs"
    configs.mkdir(parents=True)
    for name in ("__init__.py", "llama.py"):
        shutil.copy(ROOT / "families" / name, repository.folder / "families" / name)
    shutil.copy(ROOT / "families" / "configs" / f"{CONFIG}.json", configs)
    shutil.copy(ROOT / "families" / "configs" / "SOURCES.tsv", configs)
    shutil.rmtree(repository.folder / "site_src" / "records", ignore_errors=True)
    _shrink(repository.module)
    repository.git("init", "-q", "-b", "main")
    repository.python("-m", "probe", "llama")
    repository.git("add", "--all")
    repository.git("commit", "-q", "-m", "All that was")
    return repository


def _shrink(module: Path) -> None:
    """One twin, no published checkpoint."""
    text = module.read_text()
    text = re.sub(r"CHECKPOINTS = \(.*?\n\)\n", "CHECKPOINTS: tuple[str, ...] = ()\n", text, count=1, flags=re.S)
    text = re.sub(r'    "tiny-tied": \{.*?\n    \},\n(?=    "tiny-mha")', "", text, count=1, flags=re.S)
    text = re.sub(r'    "tiny-mha": \{.*?\n    \},\n(?=\})', "", text, count=1, flags=re.S)
    module.write_text(text)


@pytest.fixture
def repository(planted: Repository) -> Repository:
    """The repository as it was committed."""
    planted.git("reset", "-q", "--hard", "main")
    planted.git("clean", "-q", "-fd")
    return planted
