"""Print what the probe and the pages cost, as ratios and sizes, beside the limits set for them.

Each time is a median over several runs. Records and stamps go to a temporary folder; the page is the built one.

Usage: python tests/benchmarks/run.py [--family gemma4_text] [--runs 3] [--site site] [cost] [warm] [page]
"""

from __future__ import annotations

import argparse
import functools
import gzip
import http.server
import importlib.util
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _run(folder: str, *arguments: str) -> tuple[float, float]:
    """CPU time and elapsed time of a Python process, in seconds."""
    environment = {**os.environ, "PROBE_RECORDS": f"{folder}/records", "PROBE_CACHE": f"{folder}/cache"}
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, ended - started


def cost(family: str, runs: int, folder: str, site: Path) -> None:
    bare = statistics.median(_run(folder, "tests/benchmarks/bare.py", family)[0] for _ in range(runs))
    probe = statistics.median(_run(folder, "-m", "probe", family, "--force")[0] for _ in range(runs))
    print(f"cost   {probe / bare:5.2f} × the bare script's CPU time ({probe:.1f} s / {bare:.1f} s; limit 3)")


def warm(family: str, runs: int, folder: str, site: Path) -> None:
    _run(folder, "-m", "probe", family)
    start = statistics.median(_run(folder, "-c", "pass")[1] for _ in range(5 * runs))
    again = statistics.median(_run(folder, "-m", "probe", family)[1] for _ in range(5 * runs))
    print(f"warm   {again / start:5.2f} × the interpreter's start ({again:.3f} s / {start:.3f} s), ", end="")
    print(f"{again - start:.3f} s over it (limit 0.5)")


def page(family: str, runs: int, folder: str, site: Path) -> None:
    """What a browser loads for a family's page, gzipped, without the theme's own files and the search index."""
    from playwright.sync_api import sync_playwright

    from tests.conftest import find_chromium

    found = sorted(site.rglob(f"{family}/index.html"))
    if not found:
        sys.exit(f"There is no page of {family} in {site}: build it with `python -m probe.render build`.")
    theme = importlib.util.find_spec("material")
    assert theme is not None and theme.origin is not None
    templates = Path(theme.origin).parent / "templates"
    with _served(site) as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        tab = browser.new_page()
        loaded: set[str] = set()
        tab.on("request", lambda request: loaded.add(request.url.split("#")[0].split("?")[0]))
        tab.goto(f"{address}/{found[0].parent.relative_to(site).as_posix()}/")
        tab.wait_for_load_state("networkidle")
        browser.close()
    total = 0
    for url in sorted(loaded):
        name = url.removeprefix(f"{address}/")
        path = site / name / "index.html" if name.endswith("/") else site / name
        if not path.is_file() or (templates / name).is_file() or name.startswith("search/"):
            continue
        size = len(gzip.compress(path.read_bytes(), 9))
        total += size
        print(f"         {size / 1024:6.1f} KB  {name}")
    print(f"page   {total / 1024:6.1f} KB gzipped beyond the theme (limit 120)")


@contextmanager
def _served(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description="Print what the probe and the pages cost.")
    parser.add_argument("what", nargs="*", choices=["cost", "warm", "page", []], help="default: all of them")
    parser.add_argument("--family", default="gemma4_text")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--site", type=Path, default=ROOT / "site", help="the built site (default: site)")
    found = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    benchmarks = {"cost": cost, "warm": warm, "page": page}
    with tempfile.TemporaryDirectory() as folder:
        for name in found.what or benchmarks:
            benchmarks[name](found.family, found.runs, folder, found.site)


if __name__ == "__main__":
    main()
