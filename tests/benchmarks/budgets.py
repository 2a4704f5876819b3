"""Measure the built site against its budgets, in a browser, and print each figure beside its limit.

The status is 0 where every budget holds, 1 where one does not. The processor is slowed four times where a budget says
so; of such times the best of several counts, since other work on the machine is no part of the site.

Usage: python tests/benchmarks/budgets.py [--records DIR] [--pages 12]
       [build] [page] [index] [search] [links] [shift] [requests] [axe]
"""

from __future__ import annotations

import argparse
import functools
import gzip
import http.server
import importlib.util
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from tests.browser.conftest import QUIET, SHIFTS  # noqa: E402
from tests.conftest import find_chromium  # noqa: E402
from tests.render.crawl import Crawl  # noqa: E402

SLOWER = 4
SCREENS = ((1280, 900), (390, 844))
CARDS = 250
KEYSTROKE = """async text => {
  const input = document.querySelector(".finder-query input")
  await new Promise(resolve => setTimeout(resolve, 250))
  const start = performance.now()
  input.value = text
  input.dispatchEvent(new Event("input", { bubbles: true }))
  document.querySelector(".finder").getBoundingClientRect()
  return performance.now() - start
}"""
READY = """new Promise(resolve => {
  const ready = () => document.querySelector(".finder[data-mounted]")
  const told = () => ready() ? resolve(performance.now()) : requestAnimationFrame(told)
  told()
})"""


@dataclass(frozen=True)
class Budget:
    """``figure`` holds where it is at most ``limit``; both in ``unit``."""

    name: str
    figure: float
    limit: float
    unit: str
    note: str

    @property
    def holds(self) -> bool:
        return self.figure <= self.limit

    def __str__(self) -> str:
        verdict = "ok  " if self.holds else "OVER"
        return f"{verdict} {self.name:<44} {self.figure:8.2f} of {self.limit:g} {self.unit}  {self.note}"


class Measured:
    """A built site that is served, and a browser.

    Args:
        site: its folder.
        address: where it is served.
        many: address of a site of `CARDS` families.
        seconds: what building the site took, of the processor and on a clock.
        pages: how many pages of families are looked at where not all are.
    """

    def __init__(
        self, browser: Browser, site: Path, address: str, many: str, seconds: tuple[float, float], pages: int
    ) -> None:
        self.browser, self.site, self.address, self.many, self.seconds = browser, site, address, many, seconds
        families = sorted(path.parent for path in site.glob("*/column.json"))
        self.families = random.Random(0).sample(families, min(pages, len(families)))
        self.largest = max(
            site.glob("**/column.json"), key=lambda path: len(_zipped(path.with_name("index.html")))
        ).parent

    def addresses(self) -> list[str]:
        """The site's pages of each kind, and those of some families."""
        kinds = ["", "values/", "quirks/", "compare/", "data/", "guide/", "changes/", "how-we-know/"]
        some = [next(self.site.glob(f"{kind}/*/index.html"), None) for kind in ("values", "quirks", "compare")]
        folders = [*(path.parent for path in some if path), self.largest, *self.families]
        return kinds + [f"{folder.relative_to(self.site).as_posix()}/" for folder in dict.fromkeys(folders)]

    def open(self, path: str, screen: tuple[int, int] = SCREENS[0], scheme: str = "light", watch: bool = False) -> Page:
        size = {"width": screen[0], "height": screen[1]}
        page = self.browser.new_context(viewport=size, color_scheme=scheme).new_page()  # type: ignore[arg-type]
        if watch:
            page.add_init_script(SHIFTS)
        page.goto(path if path.startswith("http") else f"{self.address}/{path}")
        page.wait_for_load_state("networkidle")
        return page


def build(site: Measured) -> Iterator[Budget]:
    """On a clock, as a maintainer waits; it is longer beside other work, so what the processes worked is noted."""
    worked, waited = site.seconds
    pages = len(list(site.site.rglob("index.html")))
    yield Budget("the whole site built", waited, 60, "s", f"{pages} pages; {worked:.0f} s of work")


def page(site: Measured) -> Iterator[Budget]:
    """What a browser loads for the largest page of a checkpoint, without the theme's own files and the search index."""
    theme = importlib.util.find_spec("material")
    assert theme is not None and theme.origin is not None
    templates = Path(theme.origin).parent / "templates"
    loaded: set[str] = set()
    name = site.largest.relative_to(site.site).as_posix()
    tab = site.browser.new_context().new_page()
    tab.on("request", lambda request: loaded.add(request.url.split("#")[0].split("?")[0]))
    tab.goto(f"{site.address}/{name}/")
    tab.wait_for_load_state("networkidle")
    total = 0
    for url in loaded:
        asset = url.removeprefix(f"{site.address}/")
        path = site.site / asset / "index.html" if asset.endswith("/") else site.site / asset
        if path.is_file() and not (templates / asset).is_file() and not asset.startswith("search/"):
            total += len(_zipped(path))
    yield Budget("the largest page, compressed, beyond the theme", total / 1024, 150, "KB", name)


def index(site: Measured) -> Iterator[Budget]:
    """The front page with `CARDS` families, on a slower processor.

    What counts is the work of the page's thread until the filters answer, times `SLOWER`: it is the same beside other
    work on the machine, as the time on a clock is not. The latter is noted.
    """
    worked, waited, answers = [], [], []
    for rate in (1, 1, 1, SLOWER):
        tab = site.browser.new_context(viewport={"width": SCREENS[0][0], "height": SCREENS[0][1]}).new_page()
        session = tab.context.new_cdp_session(tab)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        session.send("Emulation.setCPUThrottlingRate", {"rate": rate})
        tab.goto(f"{site.many}/", wait_until="commit")
        waited.append(tab.evaluate(READY) / 1000)
        metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
        worked.append(metrics["TaskDuration"])
    note = f"{CARDS} cards; {SLOWER} × {min(worked[:-1]):.2f} s of work; {waited[-1]:.2f} s on a clock"
    yield Budget("the index interactive", SLOWER * min(worked[:-1]), 1, "s", note)
    tab.locator(".finder-query input").focus()
    tab.wait_for_selector(".finder[data-ready]", timeout=60_000)
    for word in ("m", "mlp", "mlp.c_proj", "router_logits", "a", ""):
        answers.append(min(tab.evaluate(KEYSTROKE, word) for _ in range(6)))
    yield Budget("a keystroke answered", max(answers), 50, "ms", f"{SLOWER}× slower, {CARDS} cards")


def search(site: Measured) -> Iterator[Budget]:
    for name, file in (("the theme's search index", "search/search_index.json"), ("the index's own", "index.json")):
        yield Budget(f"{name}, compressed", len(_zipped(site.site / file)) / 2**20, 1, "MB", file)


def links(site: Measured) -> Iterator[Budget]:
    """Every link, anchor, id and load of every page's file."""
    faults = list(Crawl(site.site).faults())
    yield Budget("broken links, ids given twice", len(faults), 0, "", "; ".join(faults[:3]))


def shift(site: Measured) -> Iterator[Budget]:
    """The sum of the layout's shifts on the page on which it is largest."""
    worst = (0.0, "no page")
    for screen in SCREENS:
        for path in site.addresses():
            tab = site.open(path, screen, watch=True)
            worst = max(worst, (sum(tab.evaluate("takeShifts()")), f"/{path} at {screen[0]}"))
            tab.context.close()
    yield Budget("layout shift", worst[0], 0.0, "", f"{worst[0]:.4f} on {worst[1]}" if worst[0] else "on no page")


def requests(site: Measured) -> Iterator[Budget]:
    elsewhere: set[str] = set()
    for path in site.addresses():
        tab = site.browser.new_context().new_page()
        tab.on(
            "request", lambda r: None if r.url.startswith((site.address, "data:", "blob:")) else elsewhere.add(r.url)
        )
        tab.goto(f"{site.address}/{path}")
        tab.wait_for_load_state("networkidle")
        tab.context.close()
    yield Budget("requests to third parties", len(elsewhere), 0, "", ", ".join(sorted(elsewhere)))


def axe(site: Measured) -> Iterator[Budget]:
    """Serious and critical violations that axe-core finds, in both modes."""
    import axe_playwright_python

    source = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
    found: list[str] = []
    for scheme in ("light", "dark"):
        for path in site.addresses():
            tab = site.open(path, scheme=scheme)
            tab.evaluate(source)
            violations = tab.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
            found += [f"{v['id']} on /{path}" for v in violations if v["impact"] in ("serious", "critical")]
            tab.context.close()
    yield Budget("axe-core: serious violations", len(found), 0, "", "; ".join(found[:3]))


MEASURES: dict[str, Callable[[Measured], Iterator[Budget]]] = {
    measure.__name__: measure for measure in (build, page, index, search, links, shift, requests, axe)
}


def _zipped(path: Path) -> bytes:
    return gzip.compress(path.read_bytes(), 9)


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def _built(folder: Path, address: str, records: Path | None) -> tuple[float, float]:
    """Builds a site for the address that it is served at; the seconds that took, of the processor and on a clock."""
    command = [sys.executable, "-m", "probe.render", "build", "--site", str(folder)]
    command += ["--records", str(records)] if records else []
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=ROOT, env={**os.environ, "SITE_URL": f"{address}/"}, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    worked = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return worked, time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the built site against its budgets.")
    parser.add_argument("what", nargs="*", metavar="MEASURE", help=f"of {', '.join(MEASURES)}; default: all of them")
    parser.add_argument("--records", type=Path, help="folder of records (default: site_src/records)")
    parser.add_argument("--pages", type=int, default=12, help="pages of families that are looked at (default: 12)")
    found = parser.parse_args()
    wanted = found.what or list(MEASURES)
    if unknown := [name for name in wanted if name not in MEASURES]:
        parser.error(f"there is no measure {unknown[0]!r}: choose of {', '.join(MEASURES)}")
    budgets = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        site, many, records = (Path(folder) / name for name in ("site", "many", "records"))
        with _served(site) as address, _served(many) as crowd:
            seconds = _built(site, address, found.records)
            if "index" in wanted:
                subprocess.run(
                    [sys.executable, "-m", "tests.render.many", str(records), str(CARDS)], cwd=ROOT, check=True
                )
                _built(many, crowd, records)
            browser = driver.chromium.launch(executable_path=find_chromium(), args=QUIET)
            measured = Measured(browser, site, address, crowd, seconds, found.pages)
            for name in wanted:
                for budget in MEASURES[name](measured):
                    print(budget, flush=True)
                    budgets.append(budget)
            browser.close()
    over = sum(not budget.holds for budget in budgets)
    print(f"{len(budgets) - over} of {len(budgets)} budgets hold.")
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main())
