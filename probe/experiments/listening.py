"""A forward on a short prompt that is only listened to, shared by all who listen.

It asks for the last logit alone where the model takes that request, as generation does.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar

import torch

from ..measure.run import Run
from .extra import SHORT, accepts, forward, once, token_ids

Heard = TypeVar("Heard")
Listener = Callable[[Run], AbstractContextManager[Heard]]
"""Gives what it hears while the context lasts."""

LISTENERS: list[Listener[Any]] = []


def listener(begin: Listener[Heard]) -> Listener[Heard]:
    """Has it listen to the shared forward."""
    LISTENERS.append(begin)
    return begin


def heard(run: Run, begin: Listener[Heard]) -> Heard:
    """What a listener heard; in a forward of its own where another one fails."""
    every = _together(run)
    if begin not in every:
        every[begin] = _hear(run, [begin])[begin]
    found: Heard = every[begin]
    return found


@once
def _together(run: Run) -> dict[Listener[Any], Any]:
    try:
        return _hear(run, LISTENERS)
    except Exception:
        return {}  # who is at fault raises again when it listens alone


def _hear(run: Run, listeners: list[Listener[Any]]) -> dict[Listener[Any], Any]:
    ids = token_ids(run, SHORT)
    with ExitStack() as stack, torch.no_grad():
        found = {begin: stack.enter_context(begin(run)) for begin in listeners}
        if accepts(run, "logits_to_keep"):
            run.model._module(input_ids=ids, attention_mask=torch.ones_like(ids), logits_to_keep=1)
        else:
            forward(run, ids)
    return found
