"""Building a preview: both sites, the facts and the pages that differ, and the page that shows them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from probe import store
from probe.diff import git
from probe.diff.report import difference, headline, markdown
from probe.diff.sources import source
from probe.errors import ProbeError
from probe.preview import shots
from probe.preview.page import Shown, fill
from probe.preview.pages import ChangedPage, changed
from probe.render.change import FOLDER, WANTED

STALE = 1
MARK = "change.md"

HISTORY = "changes/"
"""The page that tells of the commits before: it is another one on every branch."""


@dataclass(frozen=True)
class Preview:
    """What was built: the site, and the difference in one sentence."""

    site: Path
    headline: str


def preview(base: str, out: Path, records: Path | None = None, most: int = 12) -> Preview:
    """Build the preview of the working tree into ``out``: the site in ``site``, the facts in ``change.md``.

    Args:
        base: git revision that the change will go into; what is compared with is where their histories part.
        records: those of the change; None measures what the change can affect and takes the others as they are.
        most: number of changed pages that pictures are taken of.

    Raises ProbeError for what cannot be measured, built or shown.
    """
    start = git.merge_base(base)
    _empty(out)
    if records is None:
        records = out / "records"
        _measure(start, records)
    stale = _stale(records)
    found = difference(source(start), source(str(records.absolute())))
    site, before = out / "site", out / "before"
    with git.tree(start) as tree:
        base_site = _Site(tree, tree / git.RECORDS, before)
        _build({"the base": base_site, "the working tree": _Site(store.ROOT, records, site, wanted=True)})
    told = {f"{FOLDER}/", HISTORY}
    pages = changed(before, site, {*found.families, *found.added, *found.lost}, told)
    shown = _shown(pages[:most], pages[most:], before, site)
    fill(site, f"{base} ({start[:12]})", markdown(found), stale, shown, max(0, len(pages) - most))
    (out / MARK).write_text(markdown(found), encoding="utf-8")
    shutil.rmtree(before)
    return Preview(site, headline(found))


def _empty(out: Path) -> None:
    """Clear what an earlier preview left. Raises ProbeError where the folder holds anything else."""
    if out.is_dir() and any(out.iterdir()) and not (out / MARK).is_file():
        raise ProbeError(f"{out} is no preview and is not empty: name another folder in --out, or remove it.")
    try:
        if out.is_dir():
            shutil.rmtree(out)
        out.mkdir(parents=True)
        (out / MARK).touch()
    except OSError as error:
        raise ProbeError(f"{out} cannot be written ({error.strerror}): name another folder in --out.") from error


def _measure(start: str, records: Path) -> None:
    """Measure what the change can affect."""
    command = [sys.executable, "-m", "probe", "check", "--since", start, "--into", str(records.absolute())]
    told = subprocess.run(command, cwd=store.ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if told.returncode not in (0, STALE):
        raise ProbeError(f"The change cannot be measured:\n{told.stdout.strip()}", status=max(told.returncode, 1))


def _stale(records: Path) -> list[str]:
    """A line for each family whose records in the working tree say anything else than these."""
    found = difference(source(str(store.records_dir())), source(str(records.absolute())))
    families = sorted({*found.families, *found.added})
    return [f"{family}: `python -m probe {family}` makes its records again." for family in families]


@dataclass(frozen=True)
class _Site:
    """A site to build.

    Attributes:
        tree: the project whose code builds it.
        records: the records it is built from.
        folder: where it is built into.
        wanted: whether it has the page of the change.
    """

    tree: Path
    records: Path
    folder: Path
    wanted: bool = False


def _build(sites: dict[str, _Site]) -> None:
    """Build sites, told by whose they are, at once. Raises ProbeError with what one said that fails."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PROBE_RECORDS", "PROBE_NOTES", WANTED)}
    running = {}
    for whose, site in sites.items():
        command = [sys.executable, "-m", "probe.render", "build"]
        command += ["--records", str(site.records.absolute()), "--site", str(site.folder.absolute())]
        environment = kept | ({WANTED: "1"} if site.wanted else {})
        running[whose] = subprocess.Popen(
            command, cwd=site.tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    told = {whose: process.communicate()[0] for whose, process in running.items()}
    for whose, process in running.items():
        if process.returncode:
            said = told[whose].strip().splitlines() or ["it does not say why"]
            raise ProbeError(f"The site of {whose} cannot be built: {said[-1]}")


def _shown(seen: list[ChangedPage], unseen: list[ChangedPage], before: Path, site: Path) -> list[Shown]:
    """Take the pictures and say where they are."""
    folder = site / FOLDER
    old = [page for page in seen if page.kind != "added"]
    new = [page for page in seen if page.kind != "lost"]
    for pages, of, name in ((old, before, "before"), (new, site, "after")):
        shots.take(of, [page.uri for page in pages], folder / name, [f"{page.slug}.jpg" for page in pages])
    return [
        Shown(
            page,
            f"../{page.uri}" if page.kind != "lost" else "",
            f"before/{page.slug}.jpg" if page in old else None,
            f"after/{page.slug}.jpg" if page in new else None,
        )
        for page in [*seen, *unseen]
    ]
