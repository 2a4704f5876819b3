"""The command ``draft``: a family module, drafted from a run of the family's twins."""

from __future__ import annotations

import sys

from probe import jobs, registry
from probe.arguments import Parser
from probe.errors import ProbeError
from probe.progress import Bar


def draft(given: list[str]) -> int:
    """``python -m probe draft``."""
    parser = Parser(
        prog="python -m probe draft",
        description="Print a family module, drafted from a run of the tiny twins that every decoder has. Saved as "
        "families/FAMILY.py it works as it is, but where its comments name differing places.",
    )
    parser.add_argument("family", metavar="FAMILY", help="model_type of a text model, as `list` shows")
    parser.add_argument("--twin", metavar="NAME", help="draft from this twin alone (default: from all)")
    found = parser.read(given)
    known = registry.get(found.family)
    twins = list(registry.default_twins(known.name))
    if found.twin is not None and found.twin not in twins:
        raise ProbeError(
            f"{known.name} has no twin {found.twin!r} that is made for every decoder; it has {', '.join(twins)}."
        )
    if known.path is not None:
        print(f"{known.name} has a module, {known.path}; this draft is to compare it with.", file=sys.stderr)
    chosen = [found.twin] if found.twin else twins
    jobs.prepare(jobs.Options())
    with Bar(len(chosen), "loading the libraries") as bar:
        drafting = jobs.heavy("probe.drafting.runs")
        jobs.set_threads("tiny")
        runs = []
        for name in chosen:
            label = f"{known.name} · {name}"
            bar.starts(label)
            runs.append(drafting.run(known, name, bar.within(label)))
            bar.ends(label)
        source = drafting.source(known, runs)
    sys.stdout.write(source)
    return 0
