"""Whether a family's records are still what a probe would write, found without importing torch.

The fingerprint covers everything that decides the result: the probe's own code, the family module and the ones it
imports or else the family's row of the table, its published configs, the digests its twins are pinned by, every
installed package's version, the Python version and the options. `Surroundings` reads once what families share. A stamp
in the cache folder keeps the fingerprint of the last run beside the digest of each record it wrote; records are current
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
    "diff",
    "drafting",
    "fingerprint.py",
    "index.py",
    "installed.py",
    "jobs.py",
    "kernels",
    "misnamed.py",
    "overview.py",
    "preview",
    "progress.py",
    "reader.py",
    "refresh.py",
    "render",
    "show.py",
    "workers",
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


class Surroundings:
    """What the fingerprints of several families have in common, read once: code, packages, pins and configs.

    Args:
        options: those of the run.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        code = list(_code())
        folder = registry.FAMILIES / "configs"
        self._configs = {path.stem: path.read_bytes() for path in sorted(folder.glob("*.json"))}
        sources = folder / "SOURCES.tsv"
        self._sources = sources.read_bytes().splitlines() if sources.is_file() else []
        self._pins = [_Pins(name, content) for name, content in code if name.endswith("lock.json")]
        self._common = hashlib.sha256()
        _add(self._common, "options", store.canonical(dict(options)).encode())
        _add(self._common, "python", f"{sys.version} {platform.machine()}".encode())
        _add(self._common, "packages", "\n".join(_installed()).encode())
        for name, content in code:
            if not name.endswith("lock.json"):
                _add(self._common, name, content)

    def inputs(self, family: str) -> str:
        """The fingerprint of a family's run: a sha256 in hexadecimal. Raises ProbeError for an unknown family."""
        total = self._common.copy()
        declared = registry.get(family)
        for pins in self._pins:
            _add(total, pins.name, pins.of(family))
        for path in _modules(declared.path):
            _add(total, f"families/{path.name}", path.read_bytes())
        if not declared.declares_twins:
            _add(total, "family", repr((declared.title, declared.checkpoints, declared.twins, declared.root)).encode())
        for name, content in self._own_configs(declared):
            _add(total, name, content)
        return total.hexdigest()

    def _own_configs(self, family: registry.Family) -> Iterator[tuple[str, bytes]]:
        """The published configs of the family's model_type or named by it, and what is noted about their source."""
        stems = {checkpoint.replace("/", "__") for checkpoint in family.checkpoints}
        stems |= {str(twin["config"]) for twin in family.twins.values() if "config" in twin}
        named = f'"{family.name}"'.encode()
        used = {stem: content for stem, content in self._configs.items() if stem in stems or named in content}
        for stem, content in used.items():
            yield f"configs/{stem}.json", content
        files = {f"{stem}.json".encode() for stem in used}
        lines = [line for line in self._sources if line.split(b"\t", 1)[0] in files]
        yield "configs/SOURCES.tsv", b"\n".join(lines)


class _Pins:
    """A lock file, whose keys are ``FAMILY/TWIN``."""

    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        self._content = content
        self._entries: dict[str, dict[str, Any]] | None = {}
        try:
            for key, pin in json.loads(content).items():
                self._entries.setdefault(key.partition("/")[0], {})[key] = pin
        except (ValueError, TypeError, AttributeError):
            self._entries = None

    def of(self, family: str) -> bytes:
        """The family's entries; all of a file that cannot be read."""
        return self._content if self._entries is None else store.canonical(self._entries.get(family, {})).encode()


def _add(total: Any, name: str, content: bytes) -> None:
    total.update(f"{len(name)}:{name}:{len(content)}:".encode())
    total.update(content)


def inputs(family: str, options: Mapping[str, Any]) -> str:
    """The fingerprint of one family's run with these options, see `Surroundings`."""
    return Surroundings(options).inputs(family)


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


@functools.cache
def _installed() -> tuple[str, ...]:
    """Name and version of every installed package, as their metadata folders are named; not of the copies that a
    package holds inside itself, which importing it may put on the path.
    """
    entries = filter(os.path.isdir, map(os.path.realpath, sys.path))
    folders = {entry for entry in entries if not os.path.isfile(os.path.join(os.path.dirname(entry), "__init__.py"))}
    return tuple(sorted({name for folder in folders for name in os.listdir(folder) if name.endswith(".dist-info")}))


def _code() -> Iterator[tuple[str, bytes]]:
    """Everything under the probe's folder that decides a result: path and content."""
    for folder, folders, files in os.walk(PROBE):
        here = Path(folder)
        skipped = _LIGHT if here == PROBE else set()
        folders[:] = sorted(set(folders) - skipped - {"__pycache__"})
        for name in sorted(name for name in set(files) - skipped if not name.startswith(".")):
            yield f"probe/{(here / name).relative_to(PROBE).as_posix()}", (here / name).read_bytes()


def _modules(path: Path | None) -> list[Path]:
    """The family's module where it has one, the plumbing of the package, and every family module these import."""
    found: set[Path] = set()
    waiting = [*([path] if path else []), *registry.FAMILIES.glob("_*.py")]
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
