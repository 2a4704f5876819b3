"""A package's CUDA source, compiled for the processor with a stand-in for CUDA's runtime.

Packages are installed without their compiled parts where there is no CUDA device. Their sources are unpacked beside the
environment's packages then (``scripts/kernels`` does so), and each part is built here from the files that the package's
own ``setup.py`` lists for it, those of the backward left out.
"""

from __future__ import annotations

import ast
import ctypes
import functools
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
from torch.utils import cpp_extension

from probe.kernels.cuda_on_cpu import FOLDER
from probe.kernels.cuda_on_cpu.translate import translated
from probe.store import cache_dir

SOURCES = Path(sys.prefix) / "sources"
"""The unpacked sources of packages, a folder each."""

BACKWARD = "_bwd"
"""In the names of files that compute gradients alone."""

FLAGS = ["-O1", "-fno-strict-aliasing", "-Wno-unknown-pragmas", "-include", str(FOLDER / "for_torch.h")]


class CannotCompile(Exception):
    """Its message is a clause that says why a part is not there."""


@dataclass(frozen=True)
class Part:
    """A compiled part of a package.

    Attributes:
        launches: how many kernels of such parts have run in this process.
    """

    module: ModuleType
    launches: Callable[[], int]


@functools.cache
def part(name: str, sources: Path = SOURCES) -> Part:
    """The part ``name``, built once. Raises CannotCompile."""
    if torch.cuda.is_available():
        raise CannotCompile("with a CUDA device only the package's own build of it is run")
    found = next(_listed(name, sources), None)
    if found is None:
        raise CannotCompile("its source was not there")
    folder = cache_dir() / "cuda_on_cpu" / f"{found[0].name}-torch{torch.__version__}-{sys.implementation.cache_tag}"
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # has `ninja`
    try:
        _translate(found[0], folder / "source")
        (folder / "build").mkdir(parents=True, exist_ok=True)
        module = cpp_extension.load(
            name,
            [str(folder / "source" / _plain(file)) for file in found[1]],
            extra_cflags=FLAGS,
            extra_include_paths=[str(FOLDER)],
            build_directory=str(folder / "build"),
            with_cuda=False,
        )
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise CannotCompile(f"its source could not be compiled ({_first(error)})") from error
    launched = ctypes.c_long.in_dll(ctypes.CDLL(module.__file__), "cuda_on_cpu_launches")
    return Part(module, lambda: launched.value)


def _listed(name: str, sources: Path) -> Iterator[tuple[Path, list[str]]]:
    """The folder of the package that builds the part, and the part's files of the forward."""
    for setup in sorted(sources.glob("*/setup.py")):
        for call in ast.walk(ast.parse(setup.read_text())):
            if isinstance(call, ast.Call):
                given = {keyword.arg: keyword.value for keyword in call.keywords}
                files = _literal(given.get("sources"))
                if _literal(given.get("name")) == name and isinstance(files, list):
                    yield setup.parent, [file for file in files if BACKWARD not in Path(file).name]


def _literal(node: ast.expr | None) -> object:
    try:
        return ast.literal_eval(node) if node is not None else None
    except ValueError:
        return None


def _translate(package: Path, into: Path) -> None:
    """Writes the package's C++ files as the compiler takes them; those that are so already keep their time."""
    for file in package.rglob("*"):
        if file.suffix in {".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp"}:
            to = into / _plain(str(file.relative_to(package)))
            text = translated(file.read_text())
            if not to.exists() or to.read_text() != text:
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_text(text)


def _plain(file: str) -> str:
    """A file's name as a C++ compiler wants it."""
    return f"{file}.cpp" if file.endswith(".cu") else file


def _first(error: Exception) -> str:
    """The first error that a compiler told, else the message's first line."""
    told = re.search(r"error: .*", str(error))
    return (told.group() if told else str(error).partition("\n")[0])[:200]
