"""Records of twins: the committed one, or what a probe finds where none is committed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from probe.checkpoints import targets
from probe.record.assembled import probe_target
from probe.schema import Record
from probe.store import read_record, record_path


@cache
def record_of(family: str, twin: str) -> Record:
    path = record_path(family, twin)
    if path.is_file():
        return read_record(path)
    return probe_target(next(target for target in targets(family) if target.id == twin))


@pytest.fixture
def record() -> Callable[[str, str], Record]:
    """A twin's record by family and name."""
    return record_of
