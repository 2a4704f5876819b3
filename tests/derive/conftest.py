"""The order of mutations: those of one family after one another, since what is right of it takes longest to find."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mutations = Path(__file__).with_name("test_mutations.py")
    places = [place for place, item in enumerate(items) if item.path == mutations]
    ordered = sorted((items[place] for place in places), key=lambda item: str(item.callspec.params["family"]))
    for place, item in zip(places, ordered, strict=True):
        items[place] = item
