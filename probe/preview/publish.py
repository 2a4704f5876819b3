"""Putting a site on the branch that a static host serves: the site at its root, previews under ``previews/pr-N``.

The branch has one commit, so that pictures of past previews do not pile up. Whoever else pushes in between is not
overwritten: the push names the commit that it replaces, and is done again on what is there then. Nothing of a site is
run, and nothing but its plain files is taken.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from probe.errors import ProbeError

PREVIEWS = "previews"
TRIES = 5
LARGEST = 512 << 20
"""Bytes that a site may have."""

_WHO = {"user.name": "Transformer Atlas", "user.email": "pages@users.noreply.github.com"}


def publish(site: Path, remote: str, branch: str, number: int | None) -> None:
    """Publish a built site: as the preview of a pull request, or without a number as the site itself.

    Raises ProbeError for a site that is none, or holds anything but plain files, and where the push fails.
    """
    _require_plain(site)

    def put(tree: Path) -> None:
        if number is None:
            for path in tree.iterdir():
                if path.name not in (".git", PREVIEWS):
                    _remove(path)
            shutil.copytree(site, tree, dirs_exist_ok=True, ignore=lambda place, names: _ours(site, place, names))
        else:
            _remove(tree / folder(number))
            shutil.copytree(site, tree / folder(number), ignore=lambda place, names: _ours(site, place, names))
        (tree / ".nojekyll").touch()

    _rewrite(remote, branch, put, "Site" if number is None else f"Preview of pull request {number}")


def remove(remote: str, branch: str, number: int) -> None:
    """Take a preview off the branch, if it is there. Raises ProbeError where the push fails."""
    _rewrite(remote, branch, lambda tree: _remove(tree / folder(number)), f"Without the preview of {number}")


def folder(number: int) -> str:
    """Where a preview is on the branch."""
    return f"{PREVIEWS}/pr-{number}"


def _ours(site: Path, place: str, names: list[str]) -> set[str]:
    """What a site may not bring: git's folder, and at its root the previews."""
    return {name for name in names if name == ".git" or (Path(place) == site and name == PREVIEWS)}


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _require_plain(site: Path) -> None:
    if not (site / "index.html").is_file():
        raise ProbeError(f"There is no site at {site}: build it first.")
    total = 0
    for path in site.rglob("*"):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise ProbeError(f"{path} is no plain file; a site that holds one is not published.")
        total += path.stat().st_size
    if total > LARGEST:
        raise ProbeError(f"The site at {site} has {total >> 20} MiB; {LARGEST >> 20} are the most that is published.")


def _rewrite(remote: str, branch: str, change: Callable[[Path], None], message: str) -> None:
    address = _address(remote)
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory(prefix="pages-") as folder:
            tree = Path(folder)
            was = _fetch(tree, address, branch)
            change(tree)
            _git(tree, "add", "--all", "--force")
            if not _git(tree, "status", "--porcelain").strip():
                return
            _git(tree, "checkout", "-q", "--orphan", "rewritten")
            _git(tree, "commit", "-q", "--allow-empty", "-m", message)
            lease = f"--force-with-lease=refs/heads/{branch}:{was}"
            try:
                _git(tree, "push", "-q", lease, address, f"HEAD:refs/heads/{branch}")
            except ProbeError as error:
                failure = error
                continue
            return
    raise ProbeError(f"The branch {branch} could not be pushed in {TRIES} tries: {failure}")


def _fetch(tree: Path, address: str, branch: str) -> str:
    """Check the branch out; return its commit, empty where there is no such branch."""
    _git(tree, "init", "-q", "-b", "pages")
    for name, value in _WHO.items():
        _git(tree, "config", name, value)
    there = _git(tree, "ls-remote", address, f"refs/heads/{branch}").split()
    if not there:
        return ""
    _git(tree, "fetch", "-q", "--depth=1", address, f"refs/heads/{branch}")
    _git(tree, "checkout", "-q", "-B", "pages", "FETCH_HEAD")
    return _git(tree, "rev-parse", "HEAD").strip()


def _address(remote: str) -> str:
    """The address of a remote of this repository; what is no remote's name is an address."""
    told = subprocess.run(["git", "remote", "get-url", remote], capture_output=True, text=True, check=False)
    return told.stdout.strip() if told.returncode == 0 else remote


def _git(tree: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(tree), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["git does not say why"]
        raise ProbeError(f"git {arguments[0]} failed: {said[-1]}")
    return done.stdout
