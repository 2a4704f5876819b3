"""The command ``check``: which rows of the committed records no longer hold under the code and versions installed."""

from __future__ import annotations

import sys
from pathlib import Path

from probe import jobs, registry, store
from probe.arguments import Parser, add_load_options, directory, load_options, named, whole
from probe.diff.measured import Checked, checks
from probe.diff.words import counted, listed
from probe.errors import ProbeError

_STATUS = """\
Nothing is written to the records: `python -m probe FAMILY` brings them up to date.
The status is 0 where every record holds, 1 where one does not, 2 or more where something could not be measured.
What `python -m probe diff` takes for rounding, is it here: another machine's last digits are no failure."""

STALE = 1
_MOST = 40


def check(given: list[str]) -> int:
    """``python -m probe check``."""
    parser = Parser(
        prog="python -m probe check",
        description="Measure again, and tell which rows of the committed records no longer hold, with both readings.",
        epilog=_STATUS,
    )
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="default: all that have records")
    parser.add_argument(
        "--since", metavar="BASE", type=named, help="only what was changed since this git revision can affect"
    )
    parser.add_argument("--force", action="store_true", help="measure also what has not changed since it was measured")
    parser.add_argument(
        "--into", metavar="DIR", type=directory, help="write all records, as they would be now, to a folder"
    )
    add_load_options(parser)
    parser.add_argument(
        "--workers", type=whole(1, "a number of workers"), default=1, metavar="N", help="processes (default: 1)"
    )
    parser.add_argument(
        "--limit", type=whole(1, "a time in seconds"), metavar="SECONDS", help="time for one twin or build"
    )
    found = parser.read(given)
    if found.since and found.families:
        parser.error("--since takes no family: it finds them")
    if found.checkpoint and len(found.families) != 1:
        parser.error("--checkpoint takes one family")
    store.require_records()
    for name in found.families:
        registry.get(name)
        if not store.record_files(name):
            raise ProbeError(f"{name} has no records to check; `python -m probe {name}` makes them.")
    if not found.families and not found.since and not any(map(store.record_files, registry.names())):
        raise ProbeError(f"There is no record at {store.records_dir()} to check; `python -m probe --all` makes them.")
    options = load_options(found)
    names = list(dict.fromkeys(found.families)) or _all(found.since, options)
    crew = jobs.Crew(found.workers, found.limit, len(names) > 1 or found.workers > 1 or found.limit is not None)
    results = []
    if names:
        jobs.require_device(options)
    if not found.families and not found.since and names:
        print(
            f"No family is named, so all {len(names)} with records are checked, which takes a while; "
            f"`python -m probe check {names[0]}` checks one.",
            file=sys.stderr,
            flush=True,
        )
    if found.into:
        _copy(found.into)
    for result in checks(names, options, crew, found.force, found.checkpoint) if names else ():
        print(*_lines(result), sep="\n", flush=True)
        results.append(result)
        if found.into:
            folder = found.into / result.family
            store.write_all({folder / f"{store.file_stem(of)}.json": text for of, text in result.texts.items()})
    print(_summary(results))
    if forgotten := next((result.forgotten for result in results if result.forgotten), None):
        print(f"The next check measures again what holds: {forgotten}", file=sys.stderr)
    return _status(results, found.debug)


def _all(since: str | None, options: jobs.Options) -> list[str]:
    """The families with records, and those that have a module and should have some; of these, those affected."""
    if since is None:
        return [name for name in registry.names() if store.record_files(name)]
    from probe.diff.affected import since as affected

    modules = set(registry.modules())
    return [name for name in affected(since, options) if name in modules or store.record_files(name)]


def _copy(folder: Path) -> None:
    """The records as they are, in another folder. Raises ProbeError where that has something in it."""
    records = store.records_dir()
    if folder.is_dir() and any(folder.iterdir()):
        raise ProbeError(f"{folder} is not empty: name another folder in --into, or remove what is in it.")
    paths = [*sorted(records.glob("*/[!.]*.json")), *records.glob("schema.json")]
    store.write_all({folder / path.relative_to(records): path.read_text(encoding="utf-8") for path in paths})


def _lines(found: Checked) -> list[str]:
    """What is told of one family."""
    lines = []
    for checkpoint, changes in found.stale.items():
        lines.append(
            f"{found.family} · {checkpoint}: {counted(len(changes), 'fact')} no longer hold{_s(len(changes))}"
            + "".join(f"; {name} was {was}, is {now}" for name, (was, now) in found.versions[checkpoint].items())
            + "."
        )
        lines += [f"  {change.section}: {change.readings('recorded', 'measured')}" for change in changes[:_MOST]]
        if len(changes) > _MOST:
            lines.append(f"  and {len(changes) - _MOST} more")
    lines += [f"{found.family} · {checkpoint}: has no record." for checkpoint in found.absent]
    lines += [f"{found.family}: {sentence}" for sentence in found.broken]
    lines += [f"{outcome.job.label}: {outcome.message}" for outcome in found.failed]
    if found.unchecked:
        lines.append(f"{found.family}: not checked, as what was measured is not here: {listed(found.unchecked)}.")
    if found.holds:
        lines.append(f"{found.family}: {counted(found.held, 'record')} hold{_s(found.held)}.")
    elif found.stale or found.absent or found.broken:
        lines.append(f"{found.family}: `python -m probe {found.family}` makes its records again.")
    return lines


def _s(number: int) -> str:
    return "s" if number == 1 else ""


def _summary(results: list[Checked]) -> str:
    wrong = [result.family for result in results if not result.holds]
    if not results:
        return "Nothing to check."
    if not wrong:
        return f"All records of {counted(len(results), 'family')} hold."
    return f"Of {counted(len(results), 'family')}, {len(wrong)} do not hold: {listed(wrong, 12)}."


def _status(results: list[Checked], debug: bool) -> int:
    failed = [outcome for result in results for outcome in result.failed]
    if debug:
        print(*(outcome.trace for outcome in failed), sep="\n", file=sys.stderr)
    if failed:
        return max(2, *(outcome.status for outcome in failed))
    return 0 if all(result.holds for result in results) else STALE
