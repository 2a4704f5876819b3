"""The guide's results on disk: ``site_src/guide/results.json``."""

from __future__ import annotations

from pathlib import Path

from probe.guide.patterns import FOLDER
from probe.schema.guide import GuideResults
from probe.store import canonical, read_fitting, write_all

PATH = FOLDER / "results.json"
ANEW = "python -m probe guide --force"
"""Runs every page, without a look at the results of before."""


def read(path: Path = PATH) -> GuideResults:
    """The results that the pages show.

    Raises:
        ProbeError: there are none, they are not JSON, or they do not fit the schema.
    """
    return read_fitting(GuideResults, path, ANEW)


def write(results: GuideResults, path: Path = PATH) -> bool:
    """Writes them where they differ, whole or not at all; whether they did."""
    return bool(write_all({path: canonical(results.model_dump(mode="json"))}))
