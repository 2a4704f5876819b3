"""Which families a change can affect, so that only their records are measured again.

A family is affected where its fingerprint (see `probe.fingerprint`) is another on the two sides, or one of its records
is: a change of its module affects that family, one of the tracer all of them, one of a page none. The fingerprints of
the other side are taken by its own code, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from probe import fingerprint, jobs, registry, store
from probe.diff import git
from probe.diff.sources import here, source

_TAKE = """
import json, sys
from probe import fingerprint, registry
shared = fingerprint.Surroundings(json.loads(sys.argv[1]))
print(json.dumps({name: shared.inputs(name) for name in registry.names()}))
"""
_VERSIONS = ("constraints.txt", "pyproject.toml")


def since(revision: str, options: jobs.Options) -> list[str]:
    """The families that what was changed since a revision can affect, by name.

    The revision is where the history here left the named one. Raises ProbeError where there is no such revision.
    """
    start = git.merge_base(revision)
    with git.tree(start) as tree:
        then = _fingerprints(tree, options)
        versions = [_text(tree / name) != _text(store.ROOT / name) for name in _VERSIONS]
    now = _fingerprints(store.ROOT, options)
    if not then or any(versions):
        return registry.names()
    touched = {name for name in registry.names() if then.get(name) != now.get(name)}
    old, new = source(start).digests, here().digests
    touched |= {key[0] for key in {**old, **new} if old.get(key) != new.get(key)}
    return sorted(touched & set(registry.names()))


def _fingerprints(tree: Path, options: jobs.Options) -> dict[str, str]:
    """The fingerprints of a tree's families; empty where its code cannot tell them."""
    if tree == store.ROOT:
        shared = fingerprint.Surroundings(options.decisive())
        return {name: shared.inputs(name) for name in registry.names()}
    told = subprocess.run(
        [sys.executable, "-c", _TAKE, json.dumps(options.decisive())],
        cwd=tree, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return dict(json.loads(told.stdout)) if told.returncode == 0 else {}


def _text(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
