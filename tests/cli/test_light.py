"""The light side imports nothing that is not light, and the scripts refuse what they do not know."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT

LIGHT = [
    "arguments", "checkpoints", "cli", "diff.affected", "diff.check", "diff.show", "drafting.command", "errors",
    "fingerprint", "guide.command", "guide.patterns", "installed", "jobs", "kernels.command", "kernels.interpreter",
    "overview", "progress", "refresh", "registry", "show", "snippets.code", "store", "workers",
]  # fmt: skip
WITH_PYDANTIC = ["guide.results", "index", "kernels.results", "reader", "schema"]
PYDANTIC = {"annotated_types", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection"}


def _imported(statement: str) -> set[str]:
    """The top-level packages that a statement imports, without those of a bare interpreter and the standard library."""
    look = f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    shown = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    packages = {name.split(".")[0] for name in shown.split() if not name.startswith(("_sysconfigdata", "__mp_main__"))}
    return packages - sys.stdlib_module_names


@pytest.mark.parametrize("module", LIGHT)
def test_the_command_line_imports_the_standard_library_only(module: str) -> None:
    assert _imported(f"import probe.{module}") == {"probe"}


@pytest.mark.parametrize("module", WITH_PYDANTIC)
def test_the_schema_imports_pydantic_only(module: str) -> None:
    assert _imported(f"import probe.{module}") - PYDANTIC == {"probe"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["scripts/site", "--frce"], "scripts/site does not know --frce"),
        (["scripts/site", "--port", "many"], "--port takes a number"),
    ],
)
def test_a_script_refuses_what_it_does_not_know(arguments: list[str], sentence: str) -> None:
    done = subprocess.run(["bash", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and sentence in done.stderr


def test_a_script_names_a_missing_python() -> None:
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": "no-such-python", "VENV": "/nonexistent/venv"}
    done = subprocess.run(["bash", "scripts/site"], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "No Python 3.11 or later was found as no-such-python" in done.stderr
