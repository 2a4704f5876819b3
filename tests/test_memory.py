"""What the tests share is let go at the right time."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests import memory

HERE = Path(__file__)


@cache
def held() -> object:
    return object()


def test_a_files_caches_are_emptied_with_it_and_with_its_folder() -> None:
    first = held()
    memory.let_go(HERE.parent / "derive")
    assert held() is first
    for left in (HERE, HERE.parent):
        before = held()
        memory.let_go(left)
        assert held() is not before


def test_a_folder_is_left_with_its_last_file() -> None:
    one, other, elsewhere = Path("/a/b/one.py"), Path("/a/b/other.py"), Path("/a/c/one.py")
    assert memory.between(one, one) is None
    assert memory.between(one, other) == one
    assert memory.between(one, elsewhere) == memory.between(one, None) == Path("/a/b")
