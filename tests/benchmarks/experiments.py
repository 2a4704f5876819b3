"""What the whole set of experiments costs on a twin, in forward passes: CPU time of all over CPU time of one forward.

Both are taken once the twin has run: what Python and torch do the first time counts for neither.

Usage: python tests/benchmarks/experiments.py [FAMILY…]
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable

import torch
import transformers

from probe.experiments import run_all
from probe.measure.run import measure
from probe.record.findings import twin

SAMPLE = (
    "afmoe bamba bloom cohere2 deepseek_v3 falcon gemma2 gpt2 gpt_neo gpt_oss jamba lfm2 llama mamba mamba2 mixtral "
    "nemotron_h olmoe phi qwen3_next recurrent_gemma smollm3"
).split()
"""Families of different kinds: attention of several forms, mixtures, recurrent mixers, both."""

FORWARDS, RUNS = 9, 5


def seconds(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def cost(family: str) -> float:
    """The ratio on the first twin of a family, the median of several runs. The forwards are timed beside each run,
    since other work on the machine slows both.
    """
    model = twin(family, "tiny")
    run_all(measure(model))
    ratios = []
    for run in [measure(model) for _ in range(RUNS)]:
        gc.collect()
        with torch.no_grad():
            forward = [seconds(lambda run=run: model._module(**run.inputs)) for _ in range(FORWARDS)]
        ratios.append(seconds(lambda run=run: run_all(run)) / statistics.median(forward))
    return statistics.median(ratios)


def main() -> None:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    for family in sys.argv[1:] or SAMPLE:
        print(f"{family} {cost(family):.1f}", flush=True)


if __name__ == "__main__":
    main()
