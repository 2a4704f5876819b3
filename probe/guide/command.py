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
    parser.read(given)
    jobs.prepare(jobs.Options(offline=True), 1)
    with Bar(1, "loading the libraries") as bar:
        found = jobs.heavy("probe.guide.measure").measure(bar.within("guide"))
    results = jobs.heavy("probe.guide.results")
    changed = results.write(found)
    print(f"{results.PATH}: {'written' if changed else 'current'}.")
    return 0
