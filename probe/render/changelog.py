"""What changed in the records, commit by commit: the page of changes, from the repository's history.

A commit is told where it changed a fact, by the comparison that ``python -m probe diff`` prints; where it changed only
how records are made or worded, it is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from probe import store
from probe.diff import git
from probe.diff.compare import WORDING
from probe.diff.report import Difference, FamilyDifference, difference, headline, sentences
from probe.diff.sources import Source, source
from probe.errors import ProbeError

COMMITS = 20
"""Commits that are told at most."""
LINES = 12
"""Changes that are told of a family in one commit; the others are counted."""
SHARED = 10
"""Families from which on a change that is the same in each is told once for all of them."""
OPEN = 8
"""Families of one commit that stand open on the page; more are folded."""
READ = 3000
"""Changed records that are read at most, so that a site is built in bounded time."""


@dataclass(frozen=True)
class ChangedFamily:
    """``lines``: sentences with whose checkpoints they are of; ``url`` is None where the family has no page now."""

    title: str
    url: str | None
    lines: list[tuple[str, str]]
    more: int


@dataclass(frozen=True)
class Commit:
    """A commit that changed facts.

    Attributes:
        added: titles of families; so ``lost``.
        shared: changes that are the same in many families, and in how many.
        families: the others, by family.
        folded: whether these are too many to stand open.
    """

    name: str
    date: str
    subject: str
    headline: str
    added: list[str]
    lost: list[str]
    shared: list[tuple[str, int]]
    families: list[ChangedFamily]
    folded: bool


@dataclass(frozen=True)
class ChangesPage:
    """``ends``: why nothing older is told."""

    commits: list[Commit]
    ends: str


def changes(records: Path, families: set[str]) -> ChangesPage:
    """The last commits that changed facts of the repository's own records. ``families``: those that have a page."""
    if records.resolve() != (store.ROOT / git.RECORDS).resolve():
        return ChangesPage([], "These records are not the repository’s own, which alone have a history.")
    found: list[Commit] = []
    read = 0
    newer: Source | None = None
    try:
        shallow = git.ask("rev-parse", "--is-shallow-repository").strip() == b"true"
        for name, parent, date, subject in _log():
            if len(found) == COMMITS or read > READ:
                return ChangesPage(
                    found, "Older changes are in the repository’s history: `python -m probe diff` tells them."
                )
            if parent is None and shallow:
                break
            read += _touched(name)
            differs = None
            if parent:
                after, newer = newer or source(name), source(parent)  # the records before are those of the next commit
                differs = _facts(difference(newer, after))
            if differs is None or differs.families or differs.added or differs.lost:
                found.append(_commit(name, date, subject, differs, families))
    except ProbeError:
        return ChangesPage(found, "This copy of the project has no history that git can read.")
    if shallow:
        return ChangesPage(
            found, "This copy of the repository has its last commits only: `git fetch --unshallow` brings all."
        )
    return ChangesPage(found, "Nothing is older.")


def _log() -> Iterator[tuple[str, str | None, str, str]]:
    """Commits that touched records, the last first: name, first parent, date and subject."""
    for line in (
        git.ask("log", "--first-parent", "--format=%H%x09%P%x09%as%x09%s", "--", git.RECORDS).decode().splitlines()
    ):
        name, parents, date, subject = line.split("\t", 3)
        yield name, parents.split()[0] if parents else None, date, subject


def _facts(found: Difference) -> Difference:
    """A difference without what is only worded otherwise."""
    for name, family in list(found.families.items()):
        kept = {whose: [c for c in changes if c.section != WORDING] for whose, changes in family.changes.items()}
        family.changes = {whose: changes for whose, changes in kept.items() if changes}
        if not family.any:
            del found.families[name]
            found.unchanged += 1
    return found


def _touched(commit: str) -> int:
    listed = git.ask(
        "diff-tree", "--root", "--no-commit-id", "--name-only", "-r", "-m", "--first-parent", commit, "--", git.RECORDS
    )
    return len(listed.splitlines())


def _commit(name: str, date: str, subject: str, differs: Difference | None, families: set[str]) -> Commit:
    """``differs`` is None for the first commit of all."""
    if differs is None:
        return Commit(name[:10], date, subject, "The first records.", [], [], [], [], False)
    lines = {key: _lines(family) for key, family in differs.families.items()}
    count = Counter(sentence for told in lines.values() for sentence in dict(told))
    shared = [(sentence, families) for sentence, families in count.most_common() if families >= SHARED]
    once = dict(shared)
    changed = [
        _family(key, differs.families[key].title, [line for line in told if line[0] not in once], families)
        for key, told in lines.items()
    ]
    changed = [family for family in changed if family.lines]
    added, lost = ([title for title, _ in titles.values()] for titles in (differs.added, differs.lost))
    return Commit(name[:10], date, subject, headline(differs), added, lost, shared, changed, len(changed) > OPEN)


def _lines(family: FamilyDifference) -> list[tuple[str, str]]:
    lines = [(f"`{checkpoint}` has a record now", "") for checkpoint in family.added]
    lines += [(f"`{checkpoint}` has no record any more", "") for checkpoint in family.lost]
    return lines + [pair for told in sentences(family).values() for pair in told.items()]


def _family(name: str, title: str, lines: list[tuple[str, str]], families: set[str]) -> ChangedFamily:
    url = f"../{name}/" if name in families else None
    return ChangedFamily(title, url, lines[:LINES], max(0, len(lines) - LINES))
