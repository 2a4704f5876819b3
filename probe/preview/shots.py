"""Screenshots of two sites' pages, taken in a browser that talks to nothing but them."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from probe.errors import ProbeError

WIDTH = 1280
TALLEST = 6000
"""Pixels of a page that a screenshot shows, from its top."""

_QUIET = "--no-sandbox --disable-background-networking --disable-component-update --disable-sync --no-first-run".split()
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def _served(site: Path) -> Iterator[str]:
    handler = functools.partial(_Silent, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def take(site: Path, uris: Sequence[str], folder: Path, names: Sequence[str]) -> None:
    """Write a JPEG of each page into a folder.

    Args:
        site: folder of a built site.
        uris: its pages, as folders below its root.
        names: the pictures' file names.

    Raises ProbeError where there is no browser.
    """
    if not uris:
        return
    from playwright.sync_api import Error, sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    with _served(site) as address, sync_playwright() as driver:
        try:
            browser = driver.chromium.launch(executable_path=_browser(), args=_QUIET)
        except Error as error:
            raise ProbeError(f"No Chromium could be started ({error.message.splitlines()[0]}).") from error
        page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light", reduced_motion="reduce")
        page.route("**/*", lambda route: route.continue_() if route.request.url.startswith(address) else route.abort())
        for uri, name in zip(uris, names, strict=True):
            page.goto(f"{address}/{uri}", wait_until="networkidle")
            _shoot(page, folder / name)
        browser.close()


def _shoot(page: Any, path: Path) -> None:
    page.evaluate("document.fonts.ready.then(() => null)")
    tall = int(page.evaluate("document.documentElement.scrollHeight"))
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": min(tall, TALLEST)}
    page.screenshot(path=path, type="jpeg", quality=75, full_page=True, clip=clip)


def _browser() -> str | None:
    """The path of $CHROMIUM or of an installed browser; None leaves it to Playwright."""
    names = (os.environ.get("CHROMIUM"), *_BROWSERS)
    return next((path for name in names if name and (path := shutil.which(name))), None)
