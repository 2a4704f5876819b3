"""The command ``guide``: run the guide's pages, and keep what they came to."""

from __future__ import annotations

from probe import jobs
from probe.arguments import Parser
from probe.progress import Bar


def guide(given: list[str]) -> int:
    """``python -m probe guide``."""
    parser = Parser(
        prog="python -m probe guide",
        description="Run the code of the guide's pages on its twins and on real weights, and keep what it came to.",
    )
    parser.add_argument("--force", action="store_true", help="run also the pages whose code has not changed")
    force = parser.read(given).force
    jobs.prepare(jobs.Options(offline=True), 1)
    with Bar(1, "loading the libraries") as bar:
        measuring, results = jobs.heavy("probe.guide.measure"), jobs.heavy("probe.guide.results")
        kept = results.read() if results.PATH.exists() and not force else None
        found = measuring.measure(bar.within("guide"), kept)
    changed = results.write(found)
    print(f"{results.PATH}: {'written' if changed else 'current'}.")
    return 0
