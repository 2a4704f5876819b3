"""Other libraries' progress bars and reports, off while ours are shown."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import Any

from probe.checkpoints.target import Progress


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """transformers' bars, and its reports on what it loads, are off inside."""
    from transformers.utils import logging

    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


@contextlib.contextmanager
def gguf_reading(progress: Progress, start: float, stop: float) -> Iterator[None]:
    """Inside, transformers parses a GGUF file once instead of three times, and its tensors advance our progress.

    Parsing takes longest by far (a vocabulary's strings, one at a time), so the reader is kept between its uses.
    """
    import gguf
    from transformers import modeling_gguf_pytorch_utils as reading

    def watched(tensors: Iterable[Any], **_: Any) -> Iterator[Any]:
        every = list(tensors)
        for i, tensor in enumerate(every):
            progress("dequantising the weights", start + (stop - start) * i / len(every))
            yield tensor

    reader, bar = gguf.GGUFReader, reading.tqdm
    gguf.GGUFReader, reading.tqdm = functools.cache(reader), watched
    try:
        yield
    finally:
        gguf.GGUFReader, reading.tqdm = reader, bar
