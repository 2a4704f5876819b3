"""The command ``diff``: what differs between the records of two revisions or folders."""

from __future__ import annotations

import sys

from probe.arguments import Parser, named
from probe.diff.report import difference, markdown
from probe.diff.sources import here, source

_STATUS = """\
BASE and HEAD are each a git revision or a folder of records; without HEAD, the records of the working tree.
The status is 0 where nothing differs, 1 where something does, 2 or more where they cannot be compared.
Floats that differ as rounding may make them are the same; `probe/diff/numbers.py` says when."""


def diff(given: list[str]) -> int:
    """``python -m probe diff``."""
    parser = Parser(prog="python -m probe diff", description="Tell which facts differ, in Markdown.", epilog=_STATUS)
    parser.add_argument("base", metavar="BASE", type=named, help="what to compare with")
    parser.add_argument(
        "head", metavar="HEAD", type=named, nargs="?", help="what to compare (default: the working tree)"
    )
    found = parser.read(given)
    differs = difference(source(found.base), source(found.head) if found.head else here())
    sys.stdout.write(markdown(differs))
    return int(differs.any)
