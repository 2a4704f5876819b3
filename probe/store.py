"""Reading and writing records, so that a record on disk is always a whole one.

A record is canonical JSON: sorted keys, UTF-8, one trailing newline, the same bytes for the same facts. New records
are written beside the old ones and moved into place together, so whatever stops a run before that (Ctrl-C, kill -9,
a full disk, a failed probe) leaves the records as they were. Nothing here imports pydantic until a record is
validated.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from probe.errors import ProbeError
from probe.schema_version import SCHEMA_VERSION

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

    from probe.schema import Record

Fits = TypeVar("Fits", bound="BaseModel")

ROOT = Path(__file__).resolve().parent.parent
CACHE_NAME = "transformer-atlas"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def records_dir() -> Path:
    """The folder of all records: ``site_src/records``, or ``PROBE_RECORDS``."""
    return Path(os.environ.get("PROBE_RECORDS") or ROOT / "site_src" / "records")


def require_records() -> Path:
    """The folder of all records. Raises ProbeError where it is missing."""
    folder = records_dir()
    if not folder.is_dir():
        chosen = "PROBE_RECORDS names it: name another, or unset it"
        remedy = chosen if os.environ.get("PROBE_RECORDS") else "`python -m probe --all` makes it"
        raise ProbeError(f"There is no folder of records {folder}; {remedy}.")
    return folder


def cache_dir() -> Path:
    """The folder for what can be made again: ``PROBE_CACHE``, or a folder of ours in the user's cache."""
    if named := os.environ.get("PROBE_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / CACHE_NAME


def file_stem(checkpoint: str) -> str:
    """The file name, without ``.json``, of a checkpoint's record: its id with ``/`` written ``--``."""
    stem = checkpoint.replace("/", "--")
    if not stem or stem.startswith(".") or not stem.isprintable() or "\\" in stem:
        raise ProbeError(f"{checkpoint!r} cannot name a record; give the checkpoint an id such as org/name.")
    return stem


def record_path(family: str, checkpoint: str) -> Path:
    return records_dir() / family / f"{file_stem(checkpoint)}.json"


def record_files(family: str) -> list[Path]:
    """The records that a family has, by name."""
    return sorted((records_dir() / family).glob("[!.]*.json"))


def canonical(data: Any) -> str:
    """The one text of a JSON value. Raises ValueError on NaN and infinities, which JSON does not have."""
    return json.dumps(data, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(path: Path, command: str = "") -> dict[str, Any]:
    """A record's data, unvalidated. Raises ProbeError naming the file and what to do about it.

    Args:
        command: what makes the file again; empty for the probe of the family in whose folder it lies.
    """
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ProbeError(f"There is no record {path}; `python -m probe {path.parent.name}` makes it.") from None
    except OSError as error:
        raise ProbeError(f"The record {path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise ProbeError(f"The record {path} is not JSON ({error}); {_remedy(path, command)}") from error
    if not isinstance(data, dict):
        raise ProbeError(f"The record {path} is not a JSON object; {_remedy(path, command)}")
    return data


def read_record(path: Path) -> Record:
    """A record, validated against the schema. Raises ProbeError naming the file and what to do about it."""
    from probe.schema import Record

    return read_fitting(Record, path)


def read_fitting(model: type[Fits], path: Path, command: str = "") -> Fits:
    """A file, validated against its schema. Raises ProbeError naming the file and what to do about it.

    Args:
        command: see :func:`read_json`.
    """
    data = read_json(path, command)
    from pydantic import ValidationError

    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ProbeError(_misfit(path, first_misfit(error), command)) from error


def first_misfit(error: ValidationError) -> str:
    """The first place where data did not fit a schema, and what was wrong there."""
    every = error.errors(include_url=False)
    first = next((misfit for misfit in every if misfit["loc"] == ("schema",)), every[0])
    if first["type"] == "less_than_equal":
        return newer(first["input"])
    return f"{'.'.join(map(str, first['loc'])) or 'the record as a whole'}: {first['msg']}"


def newer(version: object) -> str:
    """What is wrong with a record of a later version of the format."""
    return f"schema: version {version} of the format, newer than this code"


def _misfit(path: Path, wrong: str, command: str = "") -> str:
    return f"The record {path} does not fit the schema ({wrong}); {_remedy(path, command)}"


def _remedy(path: Path, command: str = "") -> str:
    command = command or f"python -m probe {path.parent.name} --force"
    return f"restore it from version control, or make it again with `{command}`."


def digest(text: str) -> str:
    """The sha256 of a text's bytes, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str | None:
    """The sha256 of a file's bytes, in hexadecimal; None where it is not there or cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def write_all(texts: Mapping[Path, str]) -> list[Path]:
    """Write several files as one step and return those whose bytes changed.

    Every text lies on the disk, under a temporary name beside its target, before the first one replaces its
    predecessor. Raises ProbeError, with every file as it was, where one of them cannot be written.
    """
    changed = {path: text for path, text in texts.items() if not _holds(path, text)}
    staged: dict[Path, Path] = {}
    try:
        for path, text in changed.items():
            with _sentence(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                staged[path] = path.with_name(f".{path.name}.{os.getpid()}.tmp")
                with staged[path].open("wb") as stream:
                    stream.write(text.encode())
                    stream.flush()
                    os.fsync(stream.fileno())
        for path, temporary in staged.items():
            with _sentence(path):
                os.replace(temporary, path)
    finally:
        for temporary in staged.values():
            with contextlib.suppress(OSError):
                temporary.unlink()
    return list(changed)


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_bytes() == text.encode()
    except OSError:
        return False


@contextlib.contextmanager
def _sentence(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ProbeError(_unwritable(path, error)) from error


def _unwritable(path: Path, error: OSError) -> str:
    record = path.is_relative_to(records_dir())
    if error.errno in _FULL:
        what = f"There is no room left to write {path}: free some space and run again"
    else:
        name = " in PROBE_RECORDS" if record else " in PROBE_CACHE" if path.is_relative_to(cache_dir()) else ""
        what = f"{path} cannot be written ({error.strerror}): mend that, or name another folder{name}"
    return f"{what}; the records are as they were." if record else f"{what}."


def require_writable(folder: Path) -> None:
    """Raises ProbeError where a file could not be written into a folder, or the folder could not be made.

    Leaves nothing behind, whatever ends the process: the file it tries has no name.
    """
    import tempfile

    there = next(parent for parent in (folder, *folder.absolute().parents) if os.path.lexists(parent))
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise ProbeError(_unwritable(folder, error)) from error


def clean(folder: Path) -> None:
    """Remove what a killed run left beside the records; leaves a living run's files alone."""
    for leftover in folder.glob(".*.tmp"):
        owner = leftover.name.split(".")[-2]
        if not (owner.isdigit() and _alive(int(owner))):
            with contextlib.suppress(OSError):
                leftover.unlink()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return True


def fault(path: Path) -> str | None:
    """What is wrong with a record's file as far as its name and its text tell, one sentence; None where nothing is. A
    newer format is told, and no other misfit with the schema.
    """
    try:
        data = read_json(path)
        of = (data["family"], file_stem(data["checkpoint"]["id"]))
    except ProbeError as error:
        return str(error)
    except (KeyError, TypeError, AttributeError):
        return f"The record {path} does not say what it is of; {_remedy(path)}"
    version = data.get("schema")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        return _misfit(path, newer(version))
    return None if of == (path.parent.name, path.stem) else f"The record {path} is of {'/'.join(of)}; {_remedy(path)}"


def is_of_weights(path: Path) -> bool:
    """Whether a record is of real weights, which say more than a build without any could."""
    try:
        return bool(read_json(path)["checkpoint"]["kind"] == "weights")
    except (ProbeError, KeyError, TypeError):
        return False
