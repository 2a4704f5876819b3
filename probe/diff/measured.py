"""The committed records of families beside what a run gives now."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probe import fingerprint, refresh, store
from probe.diff.compare import Change, compare
from probe.errors import ProbeError
from probe.jobs import Crew, Job, Options, Outcome

PACKAGES = ("transformers", "torch", "nnsight")
"""What a record names the versions of that can change its facts."""


@dataclass
class Checked:
    """What came of the check of one family.

    Attributes:
        held: number of records that hold.
        stale: the checkpoints whose record no longer holds: what differs, the record's reading first.
        versions: for each of these the packages of which it was recorded under another version: both versions.
        absent: the checkpoints that can be measured here and have no record.
        broken: a sentence for each record that is no record, or that nothing measures any more.
        unchecked: the checkpoints whose record is of real weights or a device that are not here.
        failed: the checkpoints that could not be measured.
        texts: what was measured, by checkpoint, where the record does not hold.
        forgotten: why the next check measures again what holds; empty where it need not.
    """

    family: str
    held: int = 0
    stale: dict[str, list[Change]] = field(default_factory=dict)
    versions: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    failed: list[Outcome] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    forgotten: str = ""

    @property
    def holds(self) -> bool:
        return not (self.stale or self.absent or self.broken or self.failed)


def checks(
    families: list[str], options: Options, crew: Crew, force: bool, only: str | None = None
) -> Iterator[Checked]:
    """Measure families again and compare; each is yielded as soon as it is complete.

    Args:
        force: measure also what has not changed since a run wrote it: neither inputs nor record.
        only: the one checkpoint to check; None for all.

    Raises ProbeError for an unknown family, and where a family has no such checkpoint.
    """
    plans = refresh.plans(families, options, force or only is not None)
    waiting = []
    for plan in plans:
        try:
            refresh.find_jobs(plan)
        except ProbeError as error:
            if not store.record_files(plan.family) and len(plans) == 1:
                raise
            none = Job(plan.family, "no checkpoint", None)
            yield Checked(plan.family, failed=[Outcome(none, message=str(error), status=error.status)])
            continue
        if only is not None:
            plan.jobs = [job for job in plan.jobs if job.checkpoint == only]
            if not plan.jobs:
                raise ProbeError(f"Nothing of {plan.family} that can be measured here is called {only!r}.")
        waiting.append(plan)
    for plan, outcomes in refresh.run(waiting, options, crew):
        found = Checked(plan.family, held=len(plan.kept) - len(plan.spared), unchecked=list(plan.spared))
        for outcome in outcomes:
            _compare(found, outcome)
        if only is None:
            _leftovers(found, {*plan.kept, *(outcome.job.checkpoint for outcome in outcomes)})
            if found.holds and plan.inputs is not None:
                found.forgotten = _stamp(plan, outcomes, options)
        yield found


def _compare(found: Checked, outcome: Outcome) -> None:
    checkpoint = outcome.job.checkpoint
    path = store.record_path(found.family, checkpoint)
    if outcome.text is None:
        found.failed.append(outcome)
    elif not path.is_file():
        found.absent.append(checkpoint)
        found.texts[checkpoint] = outcome.text
    elif (fault := _fault(path)) is not None:
        found.broken.append(fault)
        found.texts[checkpoint] = outcome.text
    elif _elsewhere(record := store.read_json(path), measured := json.loads(outcome.text)):
        found.unchecked.append(checkpoint)
    elif changes := compare(record, measured):
        found.stale[checkpoint] = changes
        found.versions[checkpoint] = _versions(record, measured)
        found.texts[checkpoint] = outcome.text
    else:
        found.held += 1


def _elsewhere(record: dict[str, Any], measured: dict[str, Any]) -> bool:
    """Whether a record is of real weights that another kind of device ran."""
    one, other = (each["provenance"]["device"] for each in (record, measured))
    return bool(measured["checkpoint"]["kind"] == "weights" and one != other)


def _versions(record: dict[str, Any], measured: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """The packages of which a record and what was measured have another version."""
    pairs = {name: (record["provenance"][name], measured["provenance"][name]) for name in PACKAGES}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _fault(path: Path) -> str | None:
    try:
        store.read_record(path)
    except ProbeError as error:
        return str(error)
    return store.fault(path)


def _leftovers(found: Checked, known: set[str]) -> None:
    """Records of checkpoints that this family does not offer here."""
    stems = {store.file_stem(checkpoint) for checkpoint in known}
    for path in store.record_files(found.family):
        if path.stem in stems:
            continue
        if (fault := store.fault(path)) is not None:
            found.broken.append(fault)
        elif store.is_of_weights(path):
            found.unchecked.append(str(store.read_json(path)["checkpoint"]["id"]))
        else:
            found.broken.append(
                f"Nothing that can be measured here is behind {path}: remove it, or list its checkpoint."
            )


def _stamp(plan: refresh.Plan, outcomes: list[Outcome], options: Options) -> str:
    """Leave what a run would: while neither inputs nor records change, there is nothing to measure.

    Returns why it cannot be left, which changes no verdict; empty where it can.
    """
    checked = {outcome.job.checkpoint: outcome for outcome in outcomes}
    digests = {name: store.file_digest(store.record_path(plan.family, name)) or "" for name in checked}
    try:
        fingerprint.write(plan.family, options.decisive(), fingerprint.Stamp(str(plan.inputs), plan.kept | digests))
    except ProbeError as error:
        return str(error)
    return ""
