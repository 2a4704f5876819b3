"""What the command asks git for: revisions of this repository, their records, their whole tree."""

from __future__ import annotations

import contextlib
import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from probe import store
from probe.errors import ProbeError

RECORDS = "site_src/records"


def ask(*arguments: str, given: bytes = b"") -> bytes:
    """What a git command prints. Raises ProbeError with git's last line where it fails."""
    try:
        done = subprocess.run(["git", "-C", str(store.ROOT), *arguments], input=given, capture_output=True, check=False)
    except FileNotFoundError:
        raise ProbeError("Revisions are read with git, which is not installed here.") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["it does not say why"]
        raise ProbeError(f"git {arguments[0]} failed: {said[-1]}.")
    return done.stdout


def commit(revision: str) -> str:
    """The commit of a revision, in hexadecimal. Raises ProbeError where there is none of that name."""
    try:
        return ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").decode().strip()
    except ProbeError:
        remedy = "name one of either"
        if ask("rev-parse", "--is-shallow-repository").strip() == b"true":
            remedy = "this shallow clone has few revisions: `git fetch --unshallow` brings the others"
        raise ProbeError(
            f"{revision!r} is neither a revision of this repository nor a folder of records; {remedy}."
        ) from None


def merge_base(revision: str) -> str:
    """The commit at which the history here left that of a revision; the revision's own where they share none."""
    found = commit(revision)
    with contextlib.suppress(ProbeError):
        return ask("merge-base", found, "HEAD").decode().strip()
    return found


def blobs(revision: str) -> dict[tuple[str, str], str]:
    """The records of a revision: (family, file stem) -> the object that has its text."""
    found = {}
    for line in ask("ls-tree", "-r", "-z", commit(revision), "--", RECORDS).decode().split("\0"):
        about, _, path = line.partition("\t")
        parts = Path(path).parts[2:]
        if len(parts) == 2 and parts[1].endswith(".json") and not parts[1].startswith("."):
            found[parts[0], parts[1].removesuffix(".json")] = about.split()[2]
    return found


def read(objects: list[str]) -> dict[str, bytes]:
    """The contents of several objects, read by one process."""
    if not objects:
        return {}
    stream = io.BytesIO(ask("cat-file", "--batch", given="".join(f"{name}\n" for name in objects).encode()))
    contents = {}
    for name in objects:
        size = int(stream.readline().split()[2])
        contents[name] = stream.read(size)
        stream.read(1)
    return contents


@contextlib.contextmanager
def tree(revision: str) -> Iterator[Path]:
    """The whole tree of a revision in a folder that is there as long as the context lasts."""
    packed = ask("archive", "--format=tar", commit(revision))
    with tempfile.TemporaryDirectory(prefix="atlas-") as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)
