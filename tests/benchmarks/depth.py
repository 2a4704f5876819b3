"""What a twin costs against its depth: CPU time to build, derive, read, check and edit one of 4 and one of 64 blocks.

Usage: python tests/benchmarks/depth.py FAMILY…
"""

from __future__ import annotations

import dataclasses
import gc
import statistics
import sys
import time

from probe.checkpoints import Loaded, factory, load, targets
from probe.measure.collect import all_identities
from probe.measure.edits import edit_all
from probe.measure.run import measure
from probe.standard import StandardizedTransformer

SHALLOW, DEEP = 4, 64
RUNS = 3


def twin(family: str, blocks: int) -> Loaded:
    """A twin with so many blocks, its pattern of layers repeated."""
    target = next(t for t in targets(family) if t.kind == "tiny")
    small = factory.build_default(family)
    changes: dict[str, object] = {"num_hidden_layers": blocks}
    for name, value in small.config.to_dict().items():
        if isinstance(value, list) and len(value) == small.config.num_hidden_layers:
            changes[name] = [value[index % len(value)] for index in range(blocks)]
    return dataclasses.replace(load(target, attn="eager"), module=factory.build_default(family, overrides=changes))


def cost(family: str, blocks: int) -> float:
    """CPU seconds of everything up to the edits."""
    gc.collect()
    started = time.process_time()
    loaded = twin(family, blocks)
    run = measure(StandardizedTransformer(loaded))
    assert len(run.text) == blocks
    all_identities(run)
    edit_all(run)
    return time.process_time() - started


def main(families: list[str]) -> None:
    for family in families:
        cost(family, SHALLOW)  # what is done once a process
        shallow = statistics.median(cost(family, SHALLOW) for _ in range(RUNS))
        deep = statistics.median(cost(family, DEEP) for _ in range(RUNS))
        print(family, f"{shallow:.3f}", f"{deep:.3f}")


if __name__ == "__main__":
    main(sys.argv[1:])
