"""Checks twins in a process that they cannot take this one down from."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

from probe.checkpoints.factory.check import Row

LIMIT = 60.0
"""Seconds for one twin, its modules' import included."""


def work(pipe: Connection) -> None:
    """Answers each (model_type, twin) that comes through the pipe with its row, until None comes."""
    import torch
    from transformers import logging

    from probe.checkpoints.factory import check

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.set_verbosity_error()
    while (asked := pipe.recv()) is not None:
        pipe.send(check.check(*asked))


def run(
    asked: list[tuple[str, str]], limit: float = LIMIT, target: Callable[[Connection], object] = work
) -> Iterator[Row]:
    """The rows of these twins, in order; a worker that dies or runs over the limit, in seconds, is replaced."""
    context = multiprocessing.get_context("spawn")
    worker, here = None, None
    for model_type, name in asked:
        if worker is None or here is None:
            here, there = context.Pipe()
            worker = context.Process(target=target, args=(there,), daemon=True)
            worker.start()
            there.close()
        here.send((model_type, name))
        try:
            if not here.poll(limit):
                raise TimeoutError
            yield here.recv()
        except (EOFError, ConnectionError, TimeoutError) as error:
            overran = isinstance(error, TimeoutError)
            worker.kill()
            worker.join()
            said = f"ran longer than {limit:.0f} s" if overran else f"its process ended with {worker.exitcode}"
            yield Row(model_type, name, seconds=limit if overran else 0.0, error=said)
            worker = here = None
    if worker is not None and here is not None:
        here.send(None)
        worker.join()
