"""The scripts that the workflows run, in a throw-away repository with stand-ins for GitHub and the environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from probe import store
from tests.conftest import ROOT
from tests.render import fixture

GH = """\
#!/bin/sh
printf '%s\\n' "$@" >> "$HOME/asked"
"""
PROBE = """\
#!{python}
import os, pathlib, sys, tarfile
log = pathlib.Path(os.environ["HOME"]) / "probed"
with log.open("a") as stream:
    stream.write(" ".join(sys.argv[1:]) + "\\n")
if "--device" in sys.argv:
    known = next(pathlib.Path("site_src/records/llama").glob("*SmolLM2*.json"))
    known.with_name(known.name.replace("SmolLM2", "NewLM")).write_text(known.read_text().replace("SmolLM2", "NewLM"))
if "tomllib" in sys.argv[-2]:
    code, sys.argv = sys.argv[2], sys.argv[2:]
    sys.exit(exec(code))
if sys.argv[1:4] == ["-m", "pip", "download"]:
    at = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
    (at / "setup.py").write_text("a source")
    with tarfile.open(at / "one.tar.gz", "w:gz") as archive:
        archive.add(at / "setup.py", "one-1/setup.py")
if sys.argv[1:4] == ["-m", "pip", "install"]:
    log.with_name("built").write_text(str(sorted(name for name in os.environ if "CUDA_BUILD" in name)))
if "kernels" in sys.argv and "probe" in sys.argv:
    pathlib.Path("site_src/kernels.json").write_text("new")
no_device = "torch.cuda" in sys.argv[-1] and "FAKE_DEVICE" not in os.environ
sys.exit(no_device or int(os.environ.get("FAKE_STATUS", "0")))
"""


@dataclass(frozen=True)
class Repository:
    folder: Path
    home: Path

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        kept = {"PATH": f"{self.home}:{os.environ['PATH']}", "HOME": str(self.home), "VENV": str(self.home / "venv")}
        given = {**kept, "PYTHON": sys.executable, **environment}
        return subprocess.run(command, cwd=self.folder, env=given, capture_output=True, text=True)

    def git(self, *arguments: str) -> str:
        done = self.run("git", "-c", "user.name=A", "-c", "user.email=a@b.c", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def said(self, name: str) -> str:
        path = self.home / name
        return path.read_text() if path.is_file() else ""


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.format(python=sys.executable) if "{python}" in text else text)
    path.chmod(0o755)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "repository", tmp_path / "home")
    made.home.mkdir()
    for part in ("probe", "scripts"):
        shutil.copytree(ROOT / part, made.folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "constraints.txt", ".gitignore"):
        shutil.copy(ROOT / name, made.folder)
    fixture.write(made.folder / "site_src" / "records")
    _program(made.home / "gh", GH)
    _program(made.home / "venv" / "bin" / "python", PROBE)
    stamp = subprocess.run(
        ["sha256sum"], input=b"".join((ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt")),
        capture_output=True, check=True,
    ).stdout.decode().split()[0]  # fmt: skip
    for extra in ("site", "probe"):
        (made.home / "venv" / f".has-{extra}").write_text(f"{stamp}\n")
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "remote.git")], check=True)
    made.git("init", "-q", "-b", "main")
    made.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    made.git("add", "--all")
    made.git("commit", "-q", "-m", "All that was")
    return made


def test_probe_hands_its_arguments_and_its_status_on(repository: Repository) -> None:
    done = repository.run("scripts/probe", "check", "--since", "HEAD^", FAKE_STATUS="3")
    assert done.returncode == 3
    assert repository.said("probed") == "-c import pip\n-m probe check --since HEAD^\n"


def test_site_builds_from_the_committed_records(repository: Repository) -> None:
    assert repository.run("scripts/site", "--no-probe", "--no-serve").returncode == 0
    assert repository.said("probed").splitlines()[1:] == ["-m probe.render build"]


def test_a_measured_record_becomes_a_pull_request(repository: Repository) -> None:
    done = repository.run("scripts/gpu", "llama", "org/model", "cuda")
    assert done.returncode == 0, done.stderr
    assert repository.said("probed").splitlines()[-1] == "-m probe llama --checkpoint org/model --device cuda"
    measured = repository.folder / "build" / "measured"
    (record,) = (path.relative_to(measured) for path in measured.rglob("*.json"))
    assert "NewLM" in record.name

    (repository.folder / record).unlink()
    done = repository.run("scripts/propose", "build/measured", "main", "records-1", GH_TOKEN="x")
    assert done.returncode == 0, done.stderr
    assert repository.git("diff", "--name-only", "main", "origin/records-1").split() == [str(record)]
    asked = repository.said("asked")
    assert asked.startswith("auth\nsetup-git\npr\ncreate\n--base\nmain\n--head\nrecords-1\n")
    assert "has a record now" in asked


@pytest.mark.parametrize(
    ("environment", "left_out"),
    [({}, ["CAUSAL_CONV1D_SKIP_CUDA_BUILD", "MAMBA_SKIP_CUDA_BUILD"]), ({"FAKE_DEVICE": "1"}, [])],
)
def test_kernels_are_measured_in_an_environment_of_their_own_and_become_a_pull_request(
    repository: Repository, environment: dict[str, str], left_out: list[str]
) -> None:
    (repository.folder / "site_src" / "kernels.json").write_text("old")
    repository.git("add", "--all")
    repository.git("commit", "-q", "-m", "Kernels")
    shutil.copytree(repository.home / "venv", repository.home / "venv-kernels")
    done = repository.run("scripts/kernels", "mamba", **environment)
    assert done.returncode == 0, done.stderr
    asked = repository.said("probed").splitlines()
    [installed] = [line for line in asked if line.startswith("-m pip install")]
    fetched = [line for line in asked if line.startswith("-m pip download")]
    sources = repository.home / "venv-kernels" / "sources"
    if left_out:  # and compiled from source
        assert len(fetched) == 1 and "causal-conv1d==" in fetched[0] and "mamba-ssm==" in fetched[0]
        assert (sources / "one-1" / "setup.py").read_text() == "a source"
        assert repository.run("scripts/kernels", "mamba", **environment).returncode == 0
        assert repository.said("probed").count("-m pip download") == 1
    else:
        assert not fetched and not sources.exists()
    assert {"--no-deps", "--no-build-isolation"} <= {*installed.split()} and repository.said("built") == str(left_out)
    assert asked[-1] == "-m probe kernels mamba"
    assert (repository.home / "venv-kernels" / ".has-kernels").is_file()
    assert not (repository.home / "venv" / ".has-kernels").is_file()

    repository.git("checkout", "-q", "--", "site_src")
    done = repository.run("scripts/propose", "build/measured", "main", "records-4")
    assert done.returncode == 0, done.stderr
    assert repository.git("show", "origin/records-4:site_src/kernels.json") == "new"
    assert "The kernels were measured anew" in repository.said("asked")


def test_records_that_say_the_same_propose_nothing_and_links_are_refused(repository: Repository) -> None:
    folder = repository.folder / "build" / "measured" / "site_src" / "records" / "llama"
    folder.mkdir(parents=True)
    [record] = (repository.folder / "site_src" / "records" / "llama").glob("*.json")
    data = json.loads(record.read_text())
    (folder / record.name).write_text(store.canonical(data) + "\n")
    done = repository.run("scripts/propose", "build/measured", "main", "records-2")
    assert done.returncode == 0 and "No fact changed; nothing is proposed." in done.stderr
    (folder / "link.json").symlink_to("/etc/passwd")
    done = repository.run("scripts/propose", "build/measured", "main", "records-3")
    assert done.returncode == 1 and "is no plain file; nothing was proposed." in done.stderr
    assert repository.said("asked") == "" and repository.git("branch", "-a").split() == ["*", "main"]


def test_publish_pushes_a_site_with_the_standard_library(repository: Repository) -> None:
    (repository.folder / "site").mkdir()
    (repository.folder / "site" / "index.html").write_text("front")
    done = repository.run("scripts/publish", "publish", "site", GH_TOKEN="x", PYTHON=_bare(repository.home))
    assert done.returncode == 0, done.stderr
    repository.git("fetch", "-q", "origin")
    assert repository.git("show", "origin/gh-pages:index.html") == "front"
    assert repository.said("asked") == "auth\nsetup-git\n"


def _bare(folder: Path) -> str:
    """A Python that sees no installed package."""
    _program(folder / "bare", f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    return str(folder / "bare")


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("scripts/publish",), "scripts/publish takes publish, post or remove"),
        (("scripts/publish", "burn"), "scripts/publish takes publish, post or remove"),
        (("scripts/gpu", "llama"), "scripts/gpu FAMILY CHECKPOINT [DEVICE] takes"),
        (("scripts/propose", "somewhere"), "scripts/propose DIR INTO BRANCH commits"),
        (("scripts/preview",), "scripts/preview BASE [--out DIR]"),
    ],
)
def test_a_script_says_what_it_takes(repository: Repository, command: tuple[str, ...], sentence: str) -> None:
    done = repository.run(*command)
    assert done.returncode == 2 and sentence in done.stderr
