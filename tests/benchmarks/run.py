"""Print what the probe and the pages cost, as ratios and sizes, beside the limits set for them.

Each time is a median over several runs. Records and stamps go to a temporary folder; the page is the built one.

Usage: python tests/benchmarks/run.py [--family gemma4_text] [--runs 3] [--site site]
       [cost] [warm] [page] [experiments] [all] [depth]
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

DEPTH = ("llama", "qwen3_next", "mixtral")
"""Families whose cost is measured against the depth: attention alone, recurrent and attention blocks, experts."""


def _environment(folder: str) -> dict[str, str]:
    environment = {**os.environ, "PROBE_RECORDS": f"{folder}/records", "PROBE_CACHE": f"{folder}/cache"}
    return environment | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "TRANSFORMERS_VERBOSITY": "critical",
        "PYTHONWARNINGS": "ignore",
    }


def _run(folder: str, *arguments: str, check: bool = True) -> tuple[float, float]:
    """CPU time and elapsed time of a Python process, in seconds."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=_environment(folder), check=check, stdout=subprocess.DEVNULL
    )
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
    print(f"page   {total / 1024:6.1f} KB gzipped beyond the theme (limit 150)")


def _printed(folder: str, *arguments: str) -> list[str]:
    """What a Python process prints, line by line."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=_environment(folder), check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()


def every(family: str, runs: int, folder: str, site: Path) -> None:
    """All families once: twins, wiring, interior, identities, edits; then with experiments; then the command itself."""
    for label, options in (("", ()), (" with experiments", ("--experiments",))):
        first, *rest = _printed(folder, "tests/benchmarks/every.py", *options)
        count, wall, median, total = first.split()
        limits = ("limit 180", "limit 1.0") if not label else ("no limit", "no limit")
        print(f"all    {wall:>6} s elapsed for {count} families{label} in two processes ({limits[0]}); ", end="")
        print(f"{median} s CPU for the median family beyond the imports ({limits[1]}), {total} s for all of them")
        for line in filter(None, rest):
            print(f"         {line}")
    elapsed = _run(folder, "-m", "probe", "--all", "--workers", "2", "--force", check=False)[1]
    count = len(list(Path(folder, "records").glob("*/*.json")))
    print(f"all    {elapsed:6.1f} s elapsed for `python -m probe --all --workers 2`, which writes {count} records")


def experiments(family: str, runs: int, folder: str, site: Path) -> None:
    ratios = {}
    for line in _printed(folder, "tests/benchmarks/experiments.py"):
        name, ratio = line.split()
        ratios[name] = float(ratio)
    most, middle = max(ratios, key=ratios.__getitem__), statistics.median(ratios.values())
    print(f"experiments {middle:.1f} forward passes' CPU time for all of them on a twin, at the median of ", end="")
    print(f"{len(ratios)} families (limit 25); at most {ratios[most]:.1f} ({most})")


def depth(family: str, runs: int, folder: str, site: Path) -> None:
    for line in _printed(folder, "tests/benchmarks/depth.py", *DEPTH):
        name, shallow, deep = line.split()
        ratio = float(deep) / float(shallow) / 16
        print(f"depth  {ratio:5.2f} × 16 times the CPU time for 64 blocks of {name} as for 4 ", end="")
        print(f"({deep} s / {shallow} s; limit 1.3 × 16)")


@contextmanager
def _served(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


BENCHMARKS = {"cost": cost, "warm": warm, "page": page, "experiments": experiments, "all": every, "depth": depth}


def main() -> None:
    parser = argparse.ArgumentParser(description="Print what the probe and the pages cost.")
    offered = f"any of {', '.join(BENCHMARKS)} (default: all of them)"
    parser.add_argument("what", nargs="*", choices=[*BENCHMARKS, []], metavar="WHAT", help=offered)
    parser.add_argument("--family", default="gemma4_text")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--site", type=Path, default=ROOT / "site", help="the built site (default: site)")
    found = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as folder:
        for name in found.what or BENCHMARKS:
            BENCHMARKS[name](found.family, found.runs, folder, found.site)


if __name__ == "__main__":
    main()
