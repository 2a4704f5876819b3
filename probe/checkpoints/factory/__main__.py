"""``python -m probe.checkpoints.factory [MODEL_TYPE …]``: a table of every decoder's twins, built and run once.

Each twin has a time limit and runs in a process that others can outlive: a crash, a hang or an exhausted memory costs
that twin alone and is named in its row. The exit status is 1 where a twin failed that is not listed as unbuildable.
"""

from __future__ import annotations

import argparse
import sys

from probe.checkpoints import factory
from probe.checkpoints.factory.check import Row
from probe.checkpoints.factory.workers import LIMIT, run


def line(row: Row) -> str:
    shown = (
        f"{row.model_type:22} {row.twin:18} {row.class_name:36} {row.blocks:6d} {len(row.kinds):5d} {row.seconds:7.2f}"
    )
    return f"{shown}  {row.error or 'ok'}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m probe.checkpoints.factory", description=__doc__.split("\n")[0])
    parser.add_argument("model_type", nargs="*", help="decoders to build; all of them by default")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for one twin (default %(default)s)")
    given = parser.parse_args(arguments)
    listed = factory.unbuildable()
    wanted = given.model_type or [name for name in factory.decoders() if name not in listed]
    asked = [(model_type, name) for model_type in wanted for name in factory.default_twins(model_type)]
    print(f"{'model_type':22} {'twin':18} {'class':36} {'blocks':>6} {'kinds':>5} {'seconds':>7}")
    failed, seconds = 0, 0.0
    for row in run(asked, given.limit):
        print(line(row), flush=True)
        failed += row.error is not None
        seconds += row.seconds
    for model_type, reason in listed.items():
        print(f"{model_type:22} no twin: {reason}")
    print(f"{len(asked) - failed} of {len(asked)} twins of {len(wanted)} decoders ran, in {seconds:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
