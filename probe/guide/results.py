"""The guide's results on disk: ``site_src/guide/results.json``."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from probe.errors import ProbeError
from probe.guide.patterns import FOLDER
from probe.schema.guide import GuideResults
from probe.store import canonical, read_json, write_all

PATH = FOLDER / "results.json"
ANEW = "python -m probe guide --force"
"""Runs every page, without a look at the results of before."""


def read(path: Path = PATH) -> GuideResults:
    """The results that the pages show.

    Raises:
        ProbeError: there are none, they are not JSON, or they do not fit the schema.
    """
    try:
        return GuideResults.model_validate(read_json(path, ANEW))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ProbeError(
            f"{path} does not fit the schema ({where}: {first['msg']}); `{ANEW}` writes it anew."
        ) from error


def write(results: GuideResults, path: Path = PATH) -> bool:
    """Writes them where they differ, whole or not at all; whether they did."""
    return bool(write_all({path: canonical(results.model_dump(mode="json"))}))
