"""A forward on a few tokens that is only listened to, shared by all who listen.

It is called as a generation's first step is: it asks for a cache, and for the last logit alone where the model takes
that request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import update_wrapper
from typing import Any, TypeVar

import torch

from ..measure.run import Run
from .extra import CANNOT, FEW, accepts, forward, token_ids
from .shared import Shared

Heard = TypeVar("Heard")


Listener = Callable[[Run], AbstractContextManager[Heard]]
"""Gives what it hears, complete when the context ends."""


def listening(begin: Listener[Heard]) -> Callable[[Run], Heard]:
    """Has it listen to the shared forward; gives what it heard, by run."""
    return update_wrapper(_SHARED.join(begin), begin)


def _hear(run: Run, listeners: Sequence[Listener[Any]]) -> list[Any]:
    try:
        return _heard(run, listeners, use_cache=True)
    except CANNOT:
        return _heard(run, listeners)


def _heard(run: Run, listeners: Sequence[Listener[Any]], **asked: Any) -> list[Any]:
    ids = token_ids(run, FEW)
    with ExitStack() as stack, torch.no_grad():
        found = [stack.enter_context(begin(run)) for begin in listeners]
        if accepts(run, "logits_to_keep"):
            run.model._module(input_ids=ids, attention_mask=torch.ones_like(ids), logits_to_keep=1, **asked)
        else:
            forward(run, ids, **asked)
    return found


_SHARED: Shared[Listener[Any]] = Shared(_hear)
