"""Where records are compared from: a git revision, or a folder of records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probe import store
from probe.diff import git
from probe.errors import ProbeError
from probe.schema_version import SCHEMA_VERSION

Key = tuple[str, str]


@dataclass(frozen=True)
class Source:
    """All records of one revision or folder.

    Attributes:
        name: what the user called it.
        digests: (family, file stem) -> git's object name of the record's text, so that equal records need no reading.
        texts: reads the records of these object names.

    What was read once is held, for as long as the source is.
    """

    name: str
    digests: Mapping[Key, str]
    texts: Callable[[list[str]], Mapping[str, bytes]]
    _held: dict[Key, dict[str, Any]] = field(default_factory=dict, repr=False, compare=False)

    def read(self, keys: Iterable[Key]) -> dict[Key, dict[str, Any]]:
        """The data of some records. Raises ProbeError for one that is not a record."""
        wanted = list(keys)
        new = [key for key in wanted if key not in self._held]
        texts = self.texts([self.digests[key] for key in new])
        self._held.update((key, self._parsed(key, texts[self.digests[key]])) for key in new)
        return {key: self._held[key] for key in wanted}

    def _parsed(self, key: Key, text: bytes) -> dict[str, Any]:
        """Raises ProbeError where the text lacks what every record has."""
        where = f"The record {'/'.join(key)}.json of {self.name}"
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ProbeError(f"{where} is not JSON ({error}); restore it, or name another.") from error
        try:
            of, version = (data["family"], store.file_stem(data["checkpoint"]["id"])), data["schema"]
            newer = version > SCHEMA_VERSION
            data["about"]["title"], data["values"]
        except (KeyError, TypeError, AttributeError) as error:
            raise ProbeError(f"{where} does not say what a record says; `python -m probe schema` tells.") from error
        if newer:
            raise ProbeError(f"{where} is of {store.newer(version)}: update this code.")
        if of != key:
            raise ProbeError(f"{where} is of {'/'.join(of)}: move it there, or restore it.")
        return dict(data)


def source(name: str) -> Source:
    """The records that a revision or a folder has. Raises ProbeError where a name is of neither.

    A name is a folder's where it is the path of one that holds records or nothing; a checkout's is its records' folder.
    """
    folder = Path(name)
    if (folder / git.RECORDS).is_dir():
        folder = folder / git.RECORDS
    if folder.is_dir():
        paths = {(path.parent.name, path.stem): path for path in sorted(folder.glob("*/[!.]*.json"))}
        if paths or not any(folder.iterdir()) or (folder / "schema.json").is_file():
            return _of_folder(name, paths)
    return Source(name, git.blobs(name), git.read)


def here() -> Source:
    """The records of the working tree. Raises ProbeError where their folder is missing."""
    return source(str(store.require_records()))


def _of_folder(name: str, paths: Mapping[Key, Path]) -> Source:
    digests = {key: blob_name(path.read_bytes()) for key, path in paths.items()}
    places = {digests[key]: path for key, path in paths.items()}
    return Source(name, digests, lambda wanted: {digest: places[digest].read_bytes() for digest in wanted})


def blob_name(text: bytes) -> str:
    """The name that git gives to a text."""
    return hashlib.sha1(b"blob %d\0" % len(text) + text, usedforsecurity=False).hexdigest()
