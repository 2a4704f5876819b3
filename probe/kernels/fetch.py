"""Another package's function, imported from where transformers looks for it, or why it is not there."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from transformers.integrations import hub_kernels

Function = Callable[..., Any]


@dataclass(frozen=True)
class Fetched:
    """Exactly one of the two is None. ``reason``: a clause that says what stands against it."""

    function: Function | None = None
    reason: str | None = None


def fetch(package: str, name: str) -> Fetched:
    """The function ``name`` of a package.

    A package that cannot be imported as a whole, for want of its compiled part, is imported without its opening code
    where the function stands in a module of its own.
    """
    if importlib.util.find_spec(package) is None:
        return Fetched(reason=f"the package `{package}` was not installed")
    inner = hub_kernels._KERNELS_INTERNAL_PATH_MAPPINGS.get(name)
    try:
        module = _module(package, inner)
    except ImportError as error:
        if error.name and "cuda" in error.name:
            return Fetched(reason=f"`{error.name}` is needed, which is compiled for CUDA devices and was not there")
        return Fetched(reason=f"`{package}` could not be imported ({error})")
    found = getattr(module, name, None)
    return Fetched(found) if found is not None else Fetched(reason=f"the package `{package}` has no such function")


def _module(package: str, inner: str | None) -> ModuleType:
    try:
        whole = importlib.import_module(package)
    except ImportError:
        if inner is None:
            raise
        spec = importlib.util.find_spec(package)
        assert spec is not None
        bare = ModuleType(package)
        bare.__path__ = list(spec.submodule_search_locations or [])
        sys.modules[package] = bare
        try:
            return importlib.import_module(f"{package}.{inner}")
        finally:
            del sys.modules[package]
    return importlib.import_module(f"{package}.{inner}") if inner else whole
