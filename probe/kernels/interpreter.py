"""Triton's interpreter for kernels that are called on CPU tensors.

Its environment variable is read when triton is imported, so :func:`ask` comes before that. :func:`prepare` replaces
what looks for a device, and makes a loop's counter what a compiled kernel has there; no arithmetic is changed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

VARIABLE = "TRITON_INTERPRET"


def ask() -> None:
    """Kernels of this process run in the interpreter. Raises RuntimeError where triton was imported before."""
    if "triton" in sys.modules and os.environ.get(VARIABLE) != "1":
        raise RuntimeError("triton was imported before its interpreter was asked for")
    os.environ[VARIABLE] = "1"


class _NoDevice:
    """Stands where Triton keeps the driver of a device; of several configurations it has the first one chosen."""

    @staticmethod
    def get_benchmarker() -> Any:
        return lambda call, quantiles: [0.0] * len(quantiles)


def prepare() -> None:
    """Once, after :func:`ask`: there is no device to benchmark on or to switch to, and a counter is a tensor."""
    import torch
    from triton.runtime import driver, interpreter

    driver.set_active(_NoDevice())
    torch.cuda.device = lambda _: contextlib.nullcontext()
    patched = interpreter._patch_lang

    def with_counters(function: Any) -> Any:
        function.__globals__["range"] = counters
        return patched(function)

    interpreter._patch_lang = with_counters


def counters(*bounds: Any) -> Iterator[Any]:
    """``range`` as a compiled kernel has it, whose counter is an int32 tensor; the interpreter has Python's ints."""
    import numpy
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    for number in range(*map(int, bounds)):
        yield tl.tensor(TensorHandle(numpy.array([number], dtype=numpy.int32), tl.int32), tl.int32)
