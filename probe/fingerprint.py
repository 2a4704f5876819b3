"""Whether a family's records are still what a probe would write, found without importing torch.

The fingerprint covers everything that decides the result: the probe's own code, the family module and the ones it
imports, its published configs, every installed package's version, the Python version and the options. A stamp in the
cache folder keeps the fingerprint of the last run beside the digest of each record it wrote; records are current
where both still agree.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe import registry, store

PROBE = Path(__file__).resolve().parent
# What carries or shows results without deciding them.
_LIGHT = {
    "__main__.py",
    "arguments.py",
    "cli.py",
    "fingerprint.py",
    "progress.py",
    "refresh.py",
    "render",
    "show.py",
}


@dataclass(frozen=True)
class Stamp:
    """What the last complete run of a family left.

    Attributes:
        inputs: its fingerprint.
        records: for each checkpoint id the sha256 of its record.
    """

    inputs: str
    records: dict[str, str]

    def stale(self, family: str) -> list[str]:
        """The checkpoints whose record is no longer the one that was written."""
        return [
            checkpoint
            for checkpoint, digest in self.records.items()
            if store.file_digest(store.record_path(family, checkpoint)) != digest
        ]


def inputs(family: str, options: Mapping[str, Any]) -> str:
    """The fingerprint of a family's run with these options: a sha256 in hexadecimal."""
    total = hashlib.sha256()
    for name, content in _parts(family, options):
        total.update(f"{len(name)}:{name}:{len(content)}:".encode())
        total.update(content)
    return total.hexdigest()


def read(family: str, options: Mapping[str, Any]) -> Stamp | None:
    """The stamp of the last run with these options; None where there is none, or it cannot be read."""
    try:
        data = json.loads(_file(family, options).read_bytes())
        return Stamp(str(data["inputs"]), {str(key): str(value) for key, value in data["records"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write(family: str, options: Mapping[str, Any], stamp: Stamp) -> None:
    """Keep a stamp. Raises ProbeError where the cache folder cannot be written."""
    store.write_all({_file(family, options): store.canonical({"inputs": stamp.inputs, "records": stamp.records})})


def _file(family: str, options: Mapping[str, Any]) -> Path:
    key = store.canonical([str(PROBE), str(store.records_dir().absolute()), dict(options)])
    return store.cache_dir() / "stamps" / f"{family}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def _parts(family: str, options: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    yield "options", store.canonical(dict(options)).encode()
    yield "python", f"{sys.version} {platform.machine()}".encode()
    yield "packages", "\n".join(_installed()).encode()
    yield from _code(family)
    declared = registry.get(family)
    for path in _modules(declared.path):
        yield f"families/{path.name}", path.read_bytes()
    yield from _configs(declared)


@functools.cache
def _installed() -> tuple[str, ...]:
    """Name and version of every installed package, as their metadata folders are named."""
    folders = {entry for entry in map(os.path.realpath, sys.path) if os.path.isdir(entry)}
    return tuple(sorted({name for folder in folders for name in os.listdir(folder) if name.endswith(".dist-info")}))


def _code(family: str) -> Iterator[tuple[str, bytes]]:
    for folder, folders, files in os.walk(PROBE):
        here = Path(folder)
        skipped = _LIGHT if here == PROBE else set()
        folders[:] = sorted(set(folders) - skipped - {"__pycache__"})
        for name in sorted(name for name in set(files) - skipped if not name.startswith(".")):
            content = (here / name).read_bytes()
            if name.endswith(".lock.json"):
                content = _own(content, family)
            yield f"probe/{(here / name).relative_to(PROBE).as_posix()}", content


def _own(lock: bytes, family: str) -> bytes:
    """The family's entries of a lock file, whose keys are ``FAMILY/TWIN``; all of one that cannot be read."""
    try:
        entries = json.loads(lock)
        return store.canonical({key: entries[key] for key in entries if key.startswith(f"{family}/")}).encode()
    except (ValueError, TypeError, AttributeError):
        return lock


def _modules(path: Path) -> list[Path]:
    """The family's module, the plumbing of the package, and every family module these import."""
    found: set[Path] = set()
    waiting = [path, *path.parent.glob("_*.py")]
    while waiting:
        module = waiting.pop()
        if module not in found and module.is_file():
            found.add(module)
            waiting += [module.parent / f"{name}.py" for name in _imported(module)]
    return sorted(found)


def _imported(module: Path) -> set[str]:
    names: set[str] = set()
    source = module.read_bytes()
    if b"families" not in source and b"from ." not in source:
        return names
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("families.")}
        elif isinstance(node, ast.ImportFrom):
            origin = "families" + (f".{node.module}" if node.module else "") if node.level else node.module or ""
            if origin == "families":
                names |= {alias.name for alias in node.names}
            elif origin.startswith("families."):
                names.add(origin.split(".")[1])
    return names


def _configs(family: registry.Family) -> Iterator[tuple[str, bytes]]:
    """The published configs of the family's model_type or named by it, and what is noted about their source."""
    folder = family.path.parent / "configs"
    stems = {checkpoint.replace("/", "__") for checkpoint in family.checkpoints}
    stems |= {str(twin["config"]) for twin in family.twins.values() if "config" in twin}
    used = []
    for path in sorted(folder.glob("*.json")):
        content = path.read_bytes()
        if path.stem in stems or f'"{family.name}"'.encode() in content:
            used.append(path.name.encode())
            yield f"configs/{path.name}", content
    sources = folder / "SOURCES.tsv"
    lines = sources.read_bytes().splitlines() if sources.is_file() else []
    yield "configs/SOURCES.tsv", b"\n".join(line for line in lines if line.split(b"\t")[0] in used)
