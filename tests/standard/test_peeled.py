"""What a decorator wraps is found in its source, which is read once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable

import pytest
from nnsight.intervention import source

import probe.standard  # noqa: F401


def decorated(function: Callable[[], int]) -> Callable[[], int]:
    @functools.wraps(function)
    def wrapper() -> int:
        return function() + 1

    return wrapper


def one() -> int:
    return 1


def two() -> int:
    return 2


def test_a_decorators_source_is_read_once_and_each_function_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    read = inspect.getsourcelines
    monkeypatch.setattr(inspect, "getsourcelines", lambda code: asked.append(code) or read(code))
    for inner in (one, two, one):
        wrapper = decorated(inner)
        assert source.decorator_chain(wrapper) == (inner, [(wrapper, 0)])
        built, _ = source.instrument(wrapper, lambda name, function, *given: function(*given))
        assert built() == inner() + 1
    assert asked.count(decorated(one).__code__) == 1
