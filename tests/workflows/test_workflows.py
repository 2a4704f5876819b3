"""The workflows: what two linters say of them, what they may do, and that they run only what is tested."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

WORKFLOWS = ROOT / ".github" / "workflows"
NAMES = sorted(path.name for path in WORKFLOWS.glob("*.yml"))
UNTRUSTED = ["tests.yml"]
TESTED = {
    ".ci/run": "tests",
    "scripts/gpu": "tests/workflows/test_scripts.py",
    "scripts/kernels": "tests/workflows/test_scripts.py",
    "scripts/preview": "tests/preview/test_preview.py",
    "scripts/probe": "tests/workflows/test_scripts.py",
    "scripts/propose": "tests/workflows/test_scripts.py",
    "scripts/publish": "tests/workflows/test_scripts.py",
    "scripts/site": "tests/workflows/test_scripts.py",
}


def _lint(tool: str, *arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    program = shutil.which(tool, path=places)
    assert program, f"{tool} is not installed; scripts/test installs it"
    return subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True)


def _actionlint(folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    files = sorted(str(path) for path in (folder / ".github" / "workflows").glob("*.yml"))
    config = str(ROOT / ".github" / "actionlint.yaml")
    return _lint("actionlint", "-config-file", config, "-shellcheck=", "-pyflakes=", *files, folder=folder)


def _zizmor(folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return _lint("zizmor", "--offline", "--no-progress", "--quiet", "--strict-collection", ".github", folder=folder)


def _read(name: str) -> dict[Any, Any]:
    return dict(yaml.safe_load((WORKFLOWS / name).read_text()))


def _on(workflow: dict[Any, Any]) -> dict[str, Any]:
    return dict(workflow[True])  # YAML 1.1 reads the key `on` so


def _steps(name: str) -> list[dict[str, Any]]:
    return [step for job in _read(name)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("linter", [_actionlint, _zizmor])
def test_the_linters_report_nothing(linter: Any) -> None:
    done = linter()
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("linter", "old", "new", "said"),
    [
        (_actionlint, "runs-on: ubuntu-24.04", "runs-on: ubuntu-1.04", "ubuntu-1.04"),
        (_actionlint, "timeout-minutes", "timeout-hours", "timeout-hours"),
        (_zizmor, "@de0fac2e4500dabe0009e67214ff5f5447ce83dd", "@v6", "unpinned-uses"),
        (_zizmor, "run: scripts/publish publish site", "run: echo ${{ github.head_ref }}", "template-injection"),
        (_zizmor, "  push:", "  pull_request_target:", "dangerous-triggers"),
    ],
)
def test_the_linters_are_awake(linter: Any, old: str, new: str, said: str, tmp_path: Path) -> None:
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    text = (WORKFLOWS / "site.yml").read_text()
    assert old in text
    (folder / "site.yml").write_text(text.replace(old, new))
    done = linter(tmp_path)
    assert done.returncode != 0 and said in done.stdout + done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_rights_are_given_to_jobs_one_by_one(name: str) -> None:
    workflow = _read(name)
    assert workflow["permissions"] == {}
    assert all(job["timeout-minutes"] and "permissions" in job for job in workflow["jobs"].values())


@pytest.mark.parametrize("name", NAMES)
def test_where_unknown_code_runs_there_is_no_secret_and_no_right(name: str) -> None:
    """A pull request's code runs on its own event only, or on that of a labelled branch of this repository."""
    workflow, text = _read(name), (WORKFLOWS / name).read_text()
    events = set(_on(workflow))
    if "pull_request" in events and events != {"workflow_dispatch", "pull_request"}:
        assert name in UNTRUSTED
        assert "secrets." not in text and "github.token" not in text
        assert all(job["permissions"] == {"contents": "read"} for job in workflow["jobs"].values())
    if events & {"workflow_run", "pull_request_target"}:
        for step in _steps(name):
            if "checkout" in step.get("uses", ""):
                assert step["with"].get("ref") in (None, "${{ github.event.repository.default_branch }}")
    if "pull_request" in events and name not in UNTRUSTED:
        same = "github.event.pull_request.head.repo.full_name == github.repository"
        measuring = workflow["jobs"]["propose"]["needs"]
        assert workflow["jobs"].keys() == {*measuring, "propose"}
        for job in (workflow["jobs"][name] for name in measuring):
            assert same in job["if"] and job["permissions"] == {"contents": "read"} and job["environment"] == "gpu"


def test_what_a_workflow_runs_is_a_script_that_the_tests_run() -> None:
    ran = {shlex.split(step["run"])[0] for name in NAMES for step in _steps(name) if "run" in step}
    assert ran == set(TESTED)
    for script, tests in TESTED.items():
        assert os.access(ROOT / script, os.X_OK), script
        assert (ROOT / tests).is_dir() or f'"{script}"' in (ROOT / tests).read_text(), script


@pytest.mark.parametrize("name", NAMES)
def test_a_step_is_one_command_without_expressions(name: str) -> None:
    for step in _steps(name):
        if "run" in step:
            assert "${{" not in step["run"] and not re.search(r"[\n;&|]", step["run"].strip()), step["run"]


def test_what_was_measured_is_fetched_by_the_name_and_the_folder_it_was_kept_under() -> None:
    steps = _steps("gpu.yml")
    kept = [step["with"] for step in steps if "upload-artifact" in step.get("uses", "")]
    [fetched] = [step["with"] for step in steps if "download-artifact" in step.get("uses", "")]
    names = {re.sub(r"\$\{\{.*?\}\}", "0", each["name"]) for each in kept}
    assert len(names) == len(kept) and {each["path"] for each in kept} == {fetched["path"]}
    assert all(fnmatch.fnmatch(name, fetched["pattern"]) for name in names)


def test_a_preview_is_fetched_by_the_name_it_was_kept_under() -> None:
    [kept] = [step["with"] for step in _steps("tests.yml") if "upload-artifact" in step.get("uses", "")]
    [fetched] = [step["with"] for step in _steps("publish-preview.yml") if "download-artifact" in step.get("uses", "")]
    assert (kept["name"], kept["path"]) == (fetched["name"], fetched["path"])
    assert _on(_read("publish-preview.yml"))["workflow_run"]["workflows"] == [_read("tests.yml")["name"]]
