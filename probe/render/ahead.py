"""Pages composed in other processes while this one writes the site, as most of a build's time goes into composing.

The others begin at the end of the list of pages; this process asks for one after the other, from its start. A page is
claimed by whoever makes its file in a common folder, so none is composed twice, and composed pages are left there. What
another process cannot do is done here, where its error is told.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

from probe.render.generated import Generated, Site
from probe.render.page import Composed
from probe.store import ROOT

FEW = 60
"""Pages up to which no other process is started: that takes longer than composing them."""
PATIENCE = 60.0
"""Seconds after which a page that another process has claimed is composed here too."""
MOST = 3
"""Other processes at most: more would wait for this one."""


class Ahead:
    """The pages of a site, each composed as it is taken, or before.

    Args:
        site: read from its folders, which other processes read again.
        pages: what ``site.pages()`` gave.
        processes: how many others compose; as many as there are other processors where None.
    """

    def __init__(self, site: Site, pages: Sequence[Generated], processes: int | None = None) -> None:
        if processes is None:
            processes = 0 if len(pages) <= FEW else min(MOST, (os.cpu_count() or 1) - 1)
        self._places = {page.uri: place for place, page in enumerate(pages)} if processes else {}
        self._folder = tempfile.TemporaryDirectory(prefix="pages-")
        command = [sys.executable, "-m", "probe.render.ahead", self._folder.name, str(site.records), str(site.notes)]
        command.append(str(os.getpid()))
        self._others = [
            subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for _ in range(processes)
        ]
        self.stop = weakref.finalize(self, _stop, self._others, self._folder)
        """Ends the other processes, as the end of this one does too."""

    def take(self, page: Generated) -> Composed:
        """A page, once."""
        folder, place = Path(self._folder.name), self._places.get(page.uri)
        if place is None or _claimed(folder, place):
            return page.compose()
        made, end = folder / f"{place}.made", time.monotonic() + PATIENCE
        while not made.exists():
            ended = all(other.poll() is not None for other in self._others)
            if (ended or time.monotonic() > end) and not made.exists():
                return page.compose()
            time.sleep(0.005)
        composed: Composed = pickle.loads(made.read_bytes())
        made.unlink()
        return composed


def _stop(others: Sequence[subprocess.Popen[bytes]], folder: tempfile.TemporaryDirectory[str]) -> None:
    for other in others:
        other.terminate()
        other.wait()
    folder.cleanup()


def _claimed(folder: Path, place: int) -> bool:
    """Whether a page was free; it no longer is. Where no file can be made, each process finds it free."""
    try:
        (folder / str(place)).touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        return True
    return True


def _compose(folder: Path, records: Path, notes: Path, first: int) -> None:
    """What another process does, until no page is free, one fails, or the first process has ended.

    Args:
        folder: where pages are claimed and left.
        records: the folder of the site's records.
        notes: the folder of its notes.
        first: the first process's number.
    """
    pages = Site.read(records, notes).pages()
    for place in reversed(range(len(pages))):
        if os.getppid() == first and _claimed(folder, place):
            written = folder / f"{place}.part"
            written.write_bytes(pickle.dumps(pages[place].compose()))
            written.rename(folder / f"{place}.made")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process is interrupted too, and stops this one
    there, read, noted = map(Path, sys.argv[1:4])
    _compose(there, read, noted, int(sys.argv[4]))
