"""What each family costs: CPU time beyond the imports for its twins, with the experiments or without, in two processes.

Usage: python tests/benchmarks/every.py [--experiments] [FAMILY…]
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor

WORKERS = 2


def cost(family: str, with_experiments: bool) -> tuple[str, float, str]:
    """CPU seconds to build, derive, read, check and edit a family's twins; the reason where one cannot be measured."""
    from probe import experiments
    from probe.checkpoints import load, targets
    from probe.errors import ProbeError
    from probe.measure.collect import all_identities
    from probe.measure.edits import edit_all
    from probe.measure.run import measure
    from probe.standard import StandardizedTransformer

    started = time.process_time()
    try:
        for target in targets(family):
            if target.kind == "tiny":
                run = measure(StandardizedTransformer(load(target, attn="eager")))
                all_identities(run)
                edit_all(run)
                if with_experiments:
                    experiments.run_all(run)
    except ProbeError as error:
        return family, 0.0, str(error)
    return family, time.process_time() - started, ""


def prepare() -> None:
    """The imports, which count for no family."""
    import torch
    import transformers

    from probe import experiments
    from probe.record import findings

    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    assert experiments and findings


def main() -> None:
    parser = argparse.ArgumentParser(description="Print what each family costs.")
    parser.add_argument("families", nargs="*", help="default: all of them")
    parser.add_argument("--experiments", action="store_true", help="with the experiments")
    found = parser.parse_args()
    names = found.families
    started = time.perf_counter()
    if not names:
        from probe import registry

        names = registry.names()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WORKERS, context, initializer=prepare) as pool:
        jobs = [pool.submit(cost, name, found.experiments) for name in names]
        results = [job.result() for job in jobs]
    wall = time.perf_counter() - started
    failed = [f"{name}: {reason}" for name, _, reason in results if reason]
    times = {name: seconds for name, seconds, reason in results if not reason}
    print(f"{len(times)} {wall:.1f} {statistics.median(times.values()):.3f} {sum(times.values()):.1f}")
    for name in sorted(times, key=times.__getitem__, reverse=True)[:5]:
        print(f"{name} {times[name]:.2f}")
    print("\n".join(failed))


if __name__ == "__main__":
    main()
