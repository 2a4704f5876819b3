"""The fixture's site on a free port, a browser that talks to nothing else, and pages that record what goes wrong."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.conftest import ROOT, find_chromium

QUIET = "--no-sandbox --disable-background-networking --disable-component-update --disable-sync --no-first-run".split()
LEFT = "net::ERR_ABORTED"
"""How a request fails that the browser gives up itself, as it leaves the page."""

SHIFTS = """
window.shifts = []
const keep = entries => {
  for (const entry of entries) if (!entry.hadRecentInput) window.shifts.push(entry.value)
}
const observer = new PerformanceObserver(list => keep(list.getEntries()))
observer.observe({ type: "layout-shift", buffered: true })
window.takeShifts = () => {
  keep(observer.takeRecords())
  return window.shifts
}
"""


STARVED = 0.02
"""Layout shift that a starved machine can cause, which lays a page out while it is still reading it."""


_moved: WeakSet[Page] = WeakSet()


def stop_watching(page: Page) -> None:
    """From here on the test itself moves the page (another width, another medium); what shifts then is no fault."""
    _check_shifts(page)
    _moved.add(page)


def _check_shifts(page: Page) -> None:
    if page not in _moved and page.evaluate("typeof window.takeShifts") == "function":
        shifts = page.evaluate("takeShifts()")
        assert sum(shifts) < STARVED, f"the layout shifted: {shifts}"


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the fixture's site."""
    records, notes = (tmp_path_factory.mktemp(name) for name in ("records", "notes"))
    _run("-m", "tests.render.fixture", str(records), str(notes))
    with _served(records, notes, tmp_path_factory.mktemp("site")) as url:
        yield url


@pytest.fixture(scope="session")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a site of 250 families."""
    records, notes = (tmp_path_factory.mktemp(name) for name in ("records", "notes"))
    _run("-m", "tests.render.many", str(records), "250")
    with _served(records, notes, tmp_path_factory.mktemp("site")) as url:
        yield url


@pytest.fixture(scope="session")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a site of three families' committed records, whose modules bear other names than the fixture's."""
    records, notes = (tmp_path_factory.mktemp(name) for name in ("records", "notes"))
    for family in ("gpt2", "llama", "mixtral"):
        shutil.copytree(ROOT / "site_src" / "records" / family, records / family)
    with _served(records, notes, tmp_path_factory.mktemp("site")) as url:
        yield url


def _run(*command: str, **environment: str) -> None:
    environment = {**os.environ, **environment}
    subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, check=True, capture_output=True)


@contextmanager
def _served(records: Path, notes: Path, site: Path) -> Iterator[str]:
    """Builds the site for the address that it then serves it at."""
    handler = functools.partial(_Silent, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        build = ("-m", "probe.render", "build", "--records", str(records), "--site", str(site))
        _run(*build, SITE_URL=f"{url}/", PROBE_NOTES=str(notes))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield url
        server.shutdown()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = find_chromium()
    assert path, "no Chromium was found; scripts/test installs one, and CHROMIUM may name one"
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=QUIET)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Browser, address: str) -> Iterator[Callable[..., Page]]:
    """Opens a path of the fixture's site, or of the one at ``of``.

    At the end no page may have logged an error, asked elsewhere, or shifted its layout.
    """
    opened: list[tuple[Page, list[str]]] = []

    def at(path: str, width: int = 1440, height: int = 900, of: str = address, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        page = context.new_page()
        wrong: list[str] = []
        page.on("console", lambda m: wrong.append(f"console: {m.text}") if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: wrong.append(f"error: {e}"))
        page.on("requestfailed", lambda r: None if r.failure == LEFT else wrong.append(f"failed: {r.url}"))
        page.on("response", lambda r: wrong.append(f"{r.status}: {r.url}") if r.status >= 400 else None)
        own = (of, "data:", "blob:")
        page.on("request", lambda r: None if r.url.startswith(own) else wrong.append(f"elsewhere: {r.url}"))
        if options.get("java_script_enabled", True):
            page.add_init_script(SHIFTS)
        page.goto(of + path)
        if options.get("java_script_enabled", True) and page.locator("[data-part=block]").count():
            page.wait_for_selector("[data-part=block] a.part[aria-pressed]")
            page.evaluate("document.fonts.ready")
        opened.append((page, wrong))
        return page

    yield at
    for page, wrong in opened:
        assert wrong == [], wrong
        _check_shifts(page)
        page.context.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """axe-core's source, as its Python package ships it."""
    import axe_playwright_python

    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
