"""Another package's function, imported from where transformers looks for it, or why it is not there.

Where a part of the package is compiled for CUDA devices and not there, its source is compiled for the processor.
Beside the function stands the package's own PyTorch version of it, where it has one: that runs on any device.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from transformers.integrations import hub_kernels

from probe.kernels.compiled import CannotCompile, part

Function = Callable[..., Any]


@dataclass(frozen=True)
class Fetched:
    """Exactly one of ``function`` and ``reason`` is None.

    Attributes:
        reason: a clause that says what stands against the function.
        reference: the package's own PyTorch version of the function, called as the function is; None where it has none.
        launches: how many kernels the stand-in for CUDA's runtime has run so far; None where no part was compiled for
            the processor.
    """

    function: Function | None = None
    reason: str | None = None
    reference: Function | None = None
    launches: Callable[[], int] | None = None


@dataclass
class Behind:
    """A module that needs compiled parts, imported with those that could be made here.

    Attributes:
        module: None where it cannot be imported so either.
        launches: as :class:`Fetched` has it.
        lacks: why each of the others could not be made, a clause, by the name that it is imported by.
    """

    module: ModuleType | None = None
    launches: Callable[[], int] | None = None
    lacks: dict[str, str] = field(default_factory=dict)


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
        if _compiled(error):
            return _made(_behind(package, inner), package, name)
        return Fetched(reason=f"`{package}` could not be imported ({error})")
    return _made(Behind(module), package, name)


def _made(behind: Behind, package: str, name: str) -> Fetched:
    found = getattr(behind.module, name, None)
    if behind.lacks:
        lacking, why = next(iter(behind.lacks.items()))
        reason = f"`{lacking}` is needed, which is compiled for CUDA devices and was not there; {why}"
        return Fetched(reason=reason, reference=_reference(found))
    if found is None:
        return Fetched(reason=f"the package `{package}` has no such function")
    return Fetched(found, reference=_reference(found), launches=behind.launches)


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


def _compiled(error: ImportError) -> bool:
    """Whether what could not be imported is a part that is compiled for CUDA devices."""
    return bool(error.name and "cuda" in error.name)


@functools.cache
def _behind(package: str, inner: str | None) -> Behind:
    """The module with the compiled parts that it asks for, once: it may register operators.

    A part that cannot be made is an empty module. Nothing of it stays imported, so that it is not found by whoever
    could take it for whole.
    """
    behind = Behind()
    parts: dict[str, ModuleType] = {}
    while behind.module is None:
        try:
            with _apart(package, parts):
                behind.module = _module(package, inner)
        except ImportError as error:
            name = str(error.name)
            if not _compiled(error) or name in parts:
                break
            try:
                made = part(name)
            except CannotCompile as why:
                parts[name], behind.lacks[name] = ModuleType(name), str(why)
            else:
                parts[name], behind.launches = made.module, made.launches
    return behind


@contextmanager
def _apart(package: str, parts: dict[str, ModuleType]) -> Iterator[None]:
    """The package is imported anew meanwhile, with these modules beside it; then all is as it was."""

    def owned() -> list[str]:
        return [name for name in sys.modules if name.partition(".")[0] == package or name in parts]

    before = {name: sys.modules.pop(name) for name in owned()}
    sys.modules.update(parts)
    try:
        yield
    finally:
        for name in owned():
            del sys.modules[name]
        sys.modules.update(before)


def _reference(function: Function | None) -> Function | None:
    """The PyTorch version that the function's own module has of it, by the name that these packages give it.

    It takes what the function takes, in the function's order: the two may name their parameters in another one.
    """
    if function is None:
        return None
    beside = getattr(inspect.unwrap(function), "__globals__", {})
    names = (f"{name}_ref" for name in (function.__name__, function.__name__.removesuffix("_fn")))
    found = next((beside[name] for name in names if callable(beside.get(name))), None)
    if found is None:
        return None

    @functools.wraps(found)
    def reference(*args: Any, **kwargs: Any) -> Any:
        return found(**signature.bind(*args, **kwargs).arguments)

    signature = inspect.signature(function)
    reference.__signature__ = signature  # type: ignore[attr-defined]
    return reference
