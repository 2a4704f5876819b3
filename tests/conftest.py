"""What every test shares: the browser, and which one it is in the report's header."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import memory, scheduling, summary

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parent.parent

os.environ.setdefault("PROBE_STRICT", "1")  # an experiment that raises fails its test; a user's probe goes on


def find_chromium() -> str | None:
    """Path of the Chromium that browser tests run in: $CHROMIUM, one on the path, or Playwright's own."""
    for name in (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if name and (path := shutil.which(name)):
            return path
    return None


def pytest_report_header() -> str:
    path = find_chromium()
    if path is None:
        return "browser: none found (scripts/test installs one)"
    version = subprocess.run([path, "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return f"browser: {version.stdout.strip() or version.stderr.strip()} ({path})"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return scheduling.scheduler(config, log)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    left = memory.between(item.path, nextitem.path if nextitem else None)
    if left is not None:
        memory.let_go(left)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in summary.lines(terminalreporter.getreports("passed")):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium for the whole session."""
    from playwright.sync_api import sync_playwright

    path = find_chromium()
    assert path, "no Chromium was found; scripts/test installs one, and CHROMIUM may name one"
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()
