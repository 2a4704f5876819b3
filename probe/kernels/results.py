"""What ``python -m probe kernels`` measured, on disk: ``site_src/kernels.json``. Imports no torch."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from probe.schema.kernels import Comparison, KernelResults
from probe.store import ROOT, canonical, read_fitting, write_all

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
    return read_fitting(KernelResults, path, ANEW)


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
