"""Bring families' records up to date: decide what must run, run it, write each family's records in one step.

A family whose records are current costs no import of torch. A family of which one checkpoint fails keeps all of its
records as they were; the other families go on, and where there are several, they run in processes that outlive it.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field

from probe import fingerprint, jobs, registry, store
from probe.errors import ProbeError
from probe.jobs import Crew, Job, Options, Outcome, heavy


@dataclass
class Plan:
    """What one family needs.

    Attributes:
        inputs: its fingerprint; None for a run of a single checkpoint, which leaves no stamp.
        kept: digests of the records that are current, by checkpoint.
        only: the checkpoints to run; None for all.
        spared: the checkpoints whose record is of real weights that are not installed here, and so is kept.
    """

    family: str
    inputs: str | None = None
    kept: dict[str, str] = field(default_factory=dict)
    only: list[str] | None = None
    jobs: list[Job] = field(default_factory=list)
    spared: list[str] = field(default_factory=list)

    @property
    def current(self) -> bool:
        return self.only == [] and not self.jobs


def plans(families: list[str], options: Options, force: bool) -> list[Plan]:
    """What must run for these families, found without torch. Raises ProbeError for an unknown family."""
    for family in families:
        registry.get(family)
    shared = fingerprint.Surroundings(options.decisive())
    return [_plan(family, shared.inputs(family), options, force) for family in families]


def _plan(family: str, inputs: str, options: Options, force: bool) -> Plan:
    stamp = None if force else fingerprint.read(family, options.decisive())
    if stamp is None or stamp.inputs != inputs:
        return Plan(family, inputs)
    stale = stamp.stale(family)
    kept = {checkpoint: digest for checkpoint, digest in stamp.records.items() if checkpoint not in stale}
    return Plan(family, inputs, kept, stale)


def single(checkpoint: str, family: str | None, options: Options) -> Plan:
    """A plan for one checkpoint, whose family is read off it where none is given."""
    target = heavy("probe.checkpoints").resolve(checkpoint, family, offline=options.offline)
    stem = store.file_stem(target.id)
    if target.path is not None and (other := _whose(stem, target.family)):
        raise ProbeError(
            f"The record of {checkpoint} would take the place of that of {other}, by its name: rename it and run again."
        )
    return Plan(target.family, jobs=[Job(target.family, target.id, target)])


def _whose(stem: str, family: str) -> str | None:
    """The family's twin or published checkpoint whose record has this file name."""
    known = registry.get(family)
    return next((each for each in (*known.twins, *known.checkpoints) if store.file_stem(each) == stem), None)


def find_jobs(found: Plan) -> None:
    """Fill in a plan's jobs."""
    if found.jobs or found.current:
        return
    for target in heavy("probe.checkpoints").targets(found.family):
        if found.only is not None and target.id not in found.only:
            continue
        path = store.record_path(found.family, target.id)
        if target.kind == "config" and store.is_of_weights(path):
            found.kept[target.id] = store.file_digest(path) or ""
            found.spared.append(target.id)
        else:
            found.jobs.append(Job(found.family, target.id, target))
    if not found.jobs and not found.kept:
        raise ProbeError(f"The family {found.family} has no checkpoint that can be probed here.")


def require_folders(plans: list[Plan]) -> None:
    """Raises ProbeError where what the plans' runs give could not be written, before they run."""
    for found in plans:
        store.require_writable(store.record_path(found.family, "any").parent)
    if any(found.inputs is not None for found in plans):
        store.require_writable(store.cache_dir() / "stamps")


def run(plans: list[Plan], options: Options, crew: Crew) -> Iterator[tuple[Plan, list[Outcome]]]:
    """Run the plans' jobs and yield each family with its outcomes, as soon as it is complete."""
    for index, outcomes in jobs.run([found.jobs for found in plans], options, crew):
        yield plans[index], outcomes


def stopped(outcomes: list[Outcome]) -> dict[str, list[str]]:
    """The experiments that stopped with an error, by slug, and on which checkpoints."""
    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        record = json.loads(outcome.text or "{}")
        halves = [record, record.get("vision") or {}]
        for experiment in (each for half in halves for each in half.get("experiments", [])):
            if "error" in experiment["measured"]:
                found.setdefault(experiment["slug"], []).append(outcome.job.checkpoint)
    return found


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """A Ctrl-C that comes inside is heard at the end."""
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if heard:
            signal.raise_signal(signal.SIGINT)


def keep(found: Plan, outcomes: list[Outcome], options: Options) -> list[str]:
    """Write a family's new records and its stamp; return the checkpoints whose record changed."""
    texts = {store.record_path(found.family, outcome.job.checkpoint): outcome for outcome in outcomes}
    changed = store.write_all({path: outcome.text or "" for path, outcome in texts.items()})
    if found.inputs is not None:
        digests = {outcome.job.checkpoint: store.digest(outcome.text or "") for outcome in outcomes}
        fingerprint.write(found.family, options.decisive(), fingerprint.Stamp(found.inputs, found.kept | digests))
    return [texts[path].job.checkpoint for path in changed]
