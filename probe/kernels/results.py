"""What ``python -m probe kernels`` measured, on disk: ``site_src/kernels.json``. Imports no torch."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import ValidationError

from probe.errors import ProbeError
from probe.schema.kernels import Comparison, KernelResults
from probe.store import ROOT, canonical, read_json, write_all

PATH = ROOT / "site_src" / "kernels.json"
ANEW = "python -m probe kernels"
"""Measures all of them, without a look at those of before."""


def read(path: Path = PATH) -> KernelResults | None:
    """The results that the pages show; None where there are none.

    Raises:
        ProbeError: they are not JSON, or do not fit the schema.
    """
    if not path.exists():
        return None
    try:
        return KernelResults.model_validate(read_json(path, ANEW))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ProbeError(
            f"{path} does not fit the schema ({where}: {first['msg']}); `{ANEW}` writes it anew."
        ) from error


@cache
def committed() -> KernelResults | None:
    """The results of the project, read once."""
    return read()


def of(results: KernelResults | None, family: str, twin: str) -> list[Comparison]:
    """What was compared on a twin; empty where nothing is known of it."""
    return results.families.get(family, {}).get(twin, []) if results else []


def write(results: KernelResults, path: Path = PATH) -> bool:
    """Writes them where they differ, whole or not at all; whether they did."""
    return bool(write_all({path: canonical(results.model_dump(mode="json"))}))
