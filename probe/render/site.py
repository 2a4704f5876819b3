"""Building the site from the records."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path

from probe.errors import ProbeError
from probe.store import ROOT, records_dir

_SIGN = "sitemap.xml"
"""What every built site has."""


@dataclass(frozen=True)
class Built:
    directory: Path
    records: int
    pages: int
    seconds: float


def build(records: Path | None = None, site: Path | None = None) -> Built:
    """Builds the whole site from the records.

    Raises:
        ProbeError: no records, a broken record, a page that fails to build, no room to write, or a folder that holds
            anything but a site, since a build empties it.
    """
    from mkdocs.commands.build import build as mkdocs_build
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort, MkDocsException

    start = time.monotonic()
    _require_site(site or ROOT / "site")
    if records is not None:
        os.environ["PROBE_RECORDS"] = str(records.resolve())
    logging.getLogger("mkdocs").setLevel(logging.WARNING)
    try:
        config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str((site or ROOT / "site").resolve()))
        config.plugins.on_startup(command="build", dirty=False)
        mkdocs_build(config)
    except Abort as error:  # the reason was logged
        raise ProbeError("The site was not built.") from error
    except MkDocsException as error:
        raise ProbeError(str(error)) from error
    except OSError as error:
        raise ProbeError(
            f"The site cannot be written ({error.strerror}: {error.filename}); free some room or choose another --site."
        ) from error
    directory = Path(config.site_dir)
    found = len(list(records_dir().glob("*/[!.]*.json")))
    return Built(directory, found, len(list(directory.rglob("index.html"))), time.monotonic() - start)


def _require_site(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ProbeError(f"{folder} is no folder; choose another --site.")
    if folder != ROOT / "site" and folder.is_dir() and any(folder.iterdir()) and not (folder / _SIGN).is_file():
        raise ProbeError(f"{folder} holds something that is no built site; choose another --site, or empty it.")
