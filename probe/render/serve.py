"""Serving the built site on this machine, as a static host would: files, the site's own 404 page, no listings."""

from __future__ import annotations

import functools
import http.server
import os
import sys
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

from probe.errors import ProbeError
from probe.store import ROOT

PORTS = range(65536)


def serve(site: Path | None, host: str, port: int, prepare: Callable[[], None]) -> None:
    """Serves the site until interrupted, and prints its address.

    Args:
        site: directory of the built site; None is ``site``.
        port: 0 takes a free one.
        prepare: called once the port is had and before it serves; builds the site for that address.

    Raises:
        ProbeError: nothing is built, or the port is taken or is none.
    """
    directory = site or ROOT / "site"
    if port not in PORTS:
        raise ProbeError(f"{port} is no port; choose one from 0 to {PORTS[-1]} with --port.")
    try:
        server = _Server((host, port), functools.partial(_Handler, directory=str(directory)))
    except OSError as error:
        raise ProbeError(
            f"Port {port} cannot be served on {host} ({error.strerror}); choose another with --port, or --host."
        ) from error
    with server:
        address = f"http://{host}:{server.server_address[1]}/"
        os.environ.setdefault("SITE_URL", address)
        prepare()
        if not (directory / "index.html").is_file():
            raise ProbeError(f"There is no site at {directory}; build it first.")
        print(address, flush=True)
        server.serve_forever()


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of a client that went away before it had its answer."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _Handler(http.server.SimpleHTTPRequestHandler):
    directory: str

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: a served page is no news."""

    def send_head(self) -> Any:
        try:
            return super().send_head()
        except ValueError:  # a path that no file system takes
            self.send_error(HTTPStatus.NOT_FOUND)
            return None

    def list_directory(self, path: str | os.PathLike[str]) -> Any:
        """A folder without a page of its own is no page."""
        self.send_error(HTTPStatus.NOT_FOUND)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What is not there is answered by the site's own page."""
        page = Path(self.directory) / "404.html"
        if code != HTTPStatus.NOT_FOUND or not page.is_file():
            super().send_error(code, message, explain)
            return
        body = page.read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
