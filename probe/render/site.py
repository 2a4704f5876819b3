"""Building the site from the records."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from probe.errors import ProbeError
from probe.store import ROOT, records_dir

_SIGN = "sitemap.xml"
"""What every built site has."""
_BUILDING = ".building-"
"""How the folder of a site begins that is being built; one is left where a build was killed."""


@dataclass(frozen=True)
class Built:
    directory: Path
    records: int
    pages: int
    seconds: float


def build(records: Path | None = None, site: Path | None = None) -> Built:
    """Builds the whole site from the records, and then puts it in the place of the one before.

    A build that fails or is stopped leaves the site of before as it was.

    Raises:
        ProbeError: no records, a broken record, a page that fails to build, no room to write, a folder that another
            build writes, or one that holds anything but a site, since a build empties it.
    """
    from mkdocs.commands.build import build as mkdocs_build
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort, MkDocsException

    start = time.monotonic()
    directory = (site or ROOT / "site").resolve()
    _require_site(site or ROOT / "site")
    if records is not None:
        os.environ["PROBE_RECORDS"] = str(records.resolve())
    logging.getLogger("mkdocs").setLevel(logging.WARNING)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _alone(directory), tempfile.TemporaryDirectory(prefix=_BUILDING, dir=directory) as made:
            config = load_config(str(ROOT / "mkdocs.yml"), site_dir=made)
            config.plugins.on_startup(command="build", dirty=False)
            mkdocs_build(config)
            _replace(directory, Path(made))
    except Abort as error:  # the reason was logged
        raise ProbeError("The site was not built.") from error
    except MkDocsException as error:
        raise ProbeError(str(error)) from error
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise MemoryError from error
        where = error.filename2 or error.filename  # of a copy, the second is the one that is written
        raise ProbeError(
            f"The site cannot be written ({error.strerror}: {where}); free some room or choose another --site."
        ) from error
    found = len(list(records_dir().glob("*/[!.]*.json")))
    return Built(directory, found, len(list(directory.rglob("index.html"))), time.monotonic() - start)


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Holds a folder against other builds, as long as this process lives. Raises ProbeError where another holds it."""
    held = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems hold no locks
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ProbeError(f"Another build writes {directory}; wait for it, or choose another --site.") from None
        yield
    finally:
        os.close(held)


def _replace(directory: Path, made: Path) -> None:
    """Moves what was made into the folder that it lies in, and removes all else there."""
    for old in directory.iterdir():
        if old.is_dir() and not old.is_symlink():
            if old != made:
                shutil.rmtree(old)
        else:
            old.unlink()
    for new in made.iterdir():
        new.rename(directory / new.name)


def _require_site(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ProbeError(f"{folder} is no folder; choose another --site.")
    if folder == ROOT / "site" or not folder.is_dir() or (folder / _SIGN).is_file():
        return
    if any(not path.name.startswith(_BUILDING) for path in folder.iterdir()):
        raise ProbeError(f"{folder} holds something that is no built site; choose another --site, or empty it.")
