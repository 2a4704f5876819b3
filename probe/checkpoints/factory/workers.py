"""Checks twins in a process that they cannot take this one down from."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

from probe import workers
from probe.checkpoints.factory.check import Row, check
from probe.progress import Progress

LIMIT = 60.0
"""Seconds for one twin, its modules' import included."""


def prepare() -> None:
    """What a worker does once: one thread, no warnings."""
    import torch
    from transformers import logging

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.set_verbosity_error()


def work(asked: tuple[str, str], progress: Progress) -> Row:
    """The row of a twin, by model_type and name."""
    del progress
    return check(*asked)


def run(asked: list[tuple[str, str]], limit: float = LIMIT) -> Iterator[Row]:
    """The rows of these twins, in order; a worker that dies or runs over the limit, in seconds, is replaced."""
    found = workers.run(
        [[one] for one in asked],
        work,
        workers=1,
        bounds=lambda one: workers.Bounds(limit),
        prepare=prepare,
        watch=workers.Watch(),
    )
    with contextlib.closing(found):
        for _, (model_type, name), row in found:
            if isinstance(row, workers.Lost):
                seconds = limit if row.overran else 0.0
                yield Row(model_type, name, seconds=seconds, error=row.message.removeprefix("it "))
            else:
                yield row
