"""Building and serving the site."""

from __future__ import annotations

import functools
import http.server
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from probe.errors import ProbeError
from probe.store import ROOT, records_dir


@dataclass(frozen=True)
class Built:
    directory: Path
    records: int
    pages: int
    seconds: float


def build(records: Path | None = None, site: Path | None = None) -> Built:
    """Builds the whole site from the records.

    Raises:
        ProbeError: no records, a broken record, a page that fails to build, or no room to write.
    """
    from mkdocs.commands.build import build as mkdocs_build
    from mkdocs.config import load_config
    from mkdocs.exceptions import MkDocsException

    start = time.monotonic()
    if records is not None:
        os.environ["PROBE_RECORDS"] = str(records.resolve())
    logging.getLogger("mkdocs").setLevel(logging.WARNING)
    try:
        config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str((site or ROOT / "site").resolve()))
        config.plugins.on_startup(command="build", dirty=False)
        mkdocs_build(config)
    except MkDocsException as error:
        raise ProbeError(str(error)) from error
    except OSError as error:
        raise ProbeError(
            f"The site cannot be written ({error.strerror}: {error.filename}); free some room or choose another --site."
        ) from error
    directory = Path(config.site_dir)
    found = len(list(records_dir().glob("*/[!.]*.json")))
    return Built(directory, found, len(list(directory.rglob("index.html"))), time.monotonic() - start)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: a served page is no news."""


def serve(site: Path | None, host: str, port: int, prepare: Callable[[], None]) -> None:
    """Serves the site until interrupted, and prints its address.

    Args:
        prepare: called once the port is had and before it serves; builds the site for that address.

    Raises:
        ProbeError: nothing is built, or the port is taken.
    """
    directory = site or ROOT / "site"
    handler = functools.partial(_Quiet, directory=str(directory))
    try:
        server = http.server.ThreadingHTTPServer((host, port), handler)
    except OSError as error:
        raise ProbeError(
            f"Port {port} cannot be served on {host} ({error.strerror}); choose another with --port."
        ) from error
    with server:
        address = f"http://{host}:{server.server_address[1]}/"
        os.environ.setdefault("SITE_URL", address)
        prepare()
        if not (directory / "index.html").is_file():
            raise ProbeError(f"There is no site at {directory}; build it first.")
        print(address, flush=True)
        server.serve_forever()
