"""Parameters that have gradients for a while: a model is loaded without."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def learning(parameters: Iterable[torch.nn.Parameter]) -> Iterator[None]:
    """Lets parameters have gradients while the context lasts; those that are no floating numbers stay as they are."""
    frozen = [parameter for parameter in parameters if parameter.is_floating_point() and not parameter.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)
