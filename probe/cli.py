"""The command line. Light: torch is imported only when a checkpoint must run."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from probe import interrupts, jobs, overview, refresh, registry, show, store
from probe.arguments import Parser, add_load_options, load_options, whole
from probe.diff.check import check
from probe.diff.show import diff
from probe.drafting.command import draft
from probe.errors import ProbeError, unforeseen
from probe.guide.command import guide
from probe.kernels.command import kernels

_COMMANDS = """\
commands:
  python -m probe FAMILY [FAMILY …]      probe these families and refresh their records
  python -m probe read FAMILY VALUE      show one value of one run
  python -m probe list                   the families, their checkpoints, and which have records
  python -m probe draft FAMILY           print a family module, drafted from a run
  python -m probe diff BASE HEAD         tell which facts differ between two revisions' records
  python -m probe check [FAMILY …]       measure again, and tell which rows of the records no longer hold
  python -m probe guide                  run the guide's code, and keep what it came to
  python -m probe kernels                tell how far other packages' kernels are from the PyTorch code
  python -m probe schema                 write the records' JSON schema

`python -m probe COMMAND --help` tells more. `scripts/site` builds the pages from the records."""

_VERBS: dict[str, Callable[[list[str]], int]] = {
    "read": show.read,
    "list": overview.families,
    "draft": draft,
    "diff": diff,
    "check": check,
    "guide": guide,
    "kernels": kernels,
    "schema": show.schema,
}
_FEW = 8
"""So many families that are current get a line each."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status; every error ends as one sentence on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # where a terminal's encoding lacks a character
    try:
        command = _VERBS.get(given[0]) if given else None
        with interrupts.remembered():
            try:
                status = command(given[1:]) if command else _probe(given)
            except Exception:
                interrupts.heed()
                raise
        sys.stdout.flush()
        return status
    except KeyboardInterrupt as stop:
        end_line = "\n" if sys.stderr.isatty() else ""  # after the ^C that a terminal shows
        print(f"{end_line}{str(stop) or 'Stopped. The records are as they were.'}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ProbeError as error:
        _complain(str(error), traceback.format_exc(), debug)
        return error.status
    except Exception as error:
        _complain(unforeseen(error), traceback.format_exc(), debug, hint=True)
        return 1


def _complain(sentence: str, trace: str, debug: bool, hint: bool = False) -> None:
    if debug and trace:
        print(trace.rstrip(), file=sys.stderr)
    elif hint:
        sentence += " (--debug shows the traceback)"
    print(sentence, file=sys.stderr)


def _probe(given: list[str]) -> int:
    parser = Parser(
        prog="python -m probe",
        description="Measure transformer families and keep what was found as records.",
        epilog=_COMMANDS,
    )
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="model_type of a text model, as `list` shows")
    parser.add_argument("--all", action="store_true", help="every family")
    add_load_options(parser)
    parser.add_argument(
        "--json", action="store_true", help="print the records and write nothing: an array, or --checkpoint's record"
    )
    parser.add_argument("--force", action="store_true", help="run even where the records are current")
    parser.add_argument(
        "--workers", type=whole(1, "a number of workers"), default=1, metavar="N", help="processes (default: 1)"
    )
    parser.add_argument(
        "--limit",
        type=whole(1, "a time in seconds"),
        metavar="SECONDS",
        help=f"time for one twin or build, where several families are probed (default: {jobs.LIMIT:.0f})",
    )
    if not given:
        parser.print_help()
        return 0
    found = parser.read(given)
    names = sorted({*registry.names(), *registry.unlisted()}) if found.all else list(dict.fromkeys(found.families))
    if found.all and (found.families or found.checkpoint):
        parser.error("--all takes no family and no --checkpoint")
    if found.checkpoint and len(names) > 1:
        parser.error("--checkpoint takes one family at most")
    if not names and not found.checkpoint:
        parser.error("name a family, or say --all")

    for name in names:
        _require_family(name)
    options = load_options(found)
    if found.checkpoint:
        jobs.require_device(options)
        plans = [refresh.single(found.checkpoint, names[0] if names else None, options)]
    else:
        plans = refresh.plans(names, options, found.force)
        if not all(plan.current for plan in plans):
            jobs.require_device(options)
    if not found.checkpoint and not found.json and (found.dtype or found.attn or found.device != "cpu"):
        print(
            "These records will be of another load than the published ones; a plain run makes those again.",
            file=sys.stderr,
        )
    crew = jobs.Crew(found.workers, found.limit, len(plans) > 1 or found.workers > 1 or found.limit is not None)
    return (_print if found.json else _write)(plans, options, crew, found)


def _require_family(name: str) -> None:
    """Raises ProbeError for what is no family; a command that is misspelt or comes late is told as one."""
    if name in _VERBS:
        raise ProbeError(f"{name} is a command, and comes first: `python -m probe {name} --help` shows what it takes.")
    if registry.find(name) is None:
        near = registry.meant(name) or registry.nearest(name, [*_VERBS, *registry.names()])
        if "/" in name:
            near += "; a checkpoint comes after --checkpoint"
        raise ProbeError(
            f"There is no family or command {name!r}{near}; `python -m probe list` shows the families, and "
            "`python -m probe --help` the commands."
        )


def _print(plans: list[refresh.Plan], options: jobs.Options, crew: jobs.Crew, found: argparse.Namespace) -> int:
    failed = _find_jobs(plans)
    records: dict[str, list[Any]] = {}
    for ready, outcomes in refresh.run([ready for ready in plans if ready.family not in failed], options, crew):
        if wrong := [outcome for outcome in outcomes if outcome.text is None]:
            failed[ready.family] = wrong
            continue
        found_here = {outcome.job.checkpoint: json.loads(outcome.text or "") for outcome in outcomes}
        for checkpoint in ready.kept:
            found_here[checkpoint] = store.read_json(store.record_path(ready.family, checkpoint))
        records[ready.family] = [found_here[checkpoint] for checkpoint in sorted(found_here)]
    if not failed:
        every = [record for ready in plans for record in records[ready.family]]
        sys.stdout.write(store.canonical(every[0] if found.checkpoint else every))
    return _report(failed, len(plans), found.debug)


def _write(plans: list[refresh.Plan], options: jobs.Options, crew: jobs.Crew, found: argparse.Namespace) -> int:
    for ready in plans:
        store.clean(store.records_dir() / ready.family)
    failed = _find_jobs(plans)
    current = [ready for ready in plans if ready.current]
    if len(current) > _FEW:
        kept = sum(len(ready.kept) for ready in current)
        print(f"{_count(len(current), 'family')}: {_count(kept, 'record')} current; --force probes again.")
    else:
        for ready in current:
            print(f"{ready.family}: {_count(len(ready.kept), 'record')} current; --force probes again.")
    for ready in plans:
        for checkpoint in ready.spared:
            print(f"{ready.family}: the record of {checkpoint} is of real weights, not installed here; kept.")
    waiting = [ready for ready in plans if not ready.current and ready.family not in failed]
    refresh.require_folders(waiting)
    done: list[str] = []
    try:
        for ready, outcomes in refresh.run(waiting, options, crew) if waiting else ():
            if wrong := [outcome for outcome in outcomes if outcome.text is None]:
                failed[ready.family] = wrong
                continue
            with refresh.uninterrupted():
                changed = refresh.keep(ready, outcomes, options)
                done.append(ready.family)
            probed, written = _count(len(outcomes), "checkpoint"), _count(len(changed), "record")
            print(f"{ready.family}: {probed} probed, {written} changed.")
            for checkpoint in changed:
                print(f"  {store.record_path(ready.family, checkpoint)}")
            if stopped := refresh.stopped(outcomes):
                said = "; ".join(f"{slug} ({', '.join(where)})" for slug, where in stopped.items())
                print(f"{ready.family}: experiments that stopped with an error: {said}.", file=sys.stderr)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_stopped(done)) from None
    if waiting and not failed:
        print("`scripts/site --no-probe` shows the pages.")
    return _report(failed, len(plans), found.debug)


def _stopped(done: list[str]) -> str:
    """What an interrupt left, after the records of these families were written."""
    if not done:
        return "Stopped. The records are as they were."
    if len(done) > _FEW:
        return f"Stopped. {len(done)} families are done; the records of the others are as they were."
    are = "is" if len(done) == 1 else "are"
    return f"Stopped. {', '.join(done)} {are} done; the records of the others are as they were."


def _find_jobs(plans: list[refresh.Plan]) -> dict[str, list[jobs.Outcome]]:
    """Fill in the plans' jobs; of several families, what is wrong with one is told with what goes wrong later."""
    failed: dict[str, list[jobs.Outcome]] = {}
    for ready in plans:
        try:
            refresh.find_jobs(ready)
        except ProbeError as error:
            if len(plans) == 1:
                raise
            none = jobs.Job(ready.family, "no checkpoint", None)
            failed[ready.family] = [jobs.Outcome(none, message=str(error), status=error.status)]
    return failed


def _report(failed: dict[str, list[jobs.Outcome]], asked: int, debug: bool) -> int:
    """Tell what failed, a line for each checkpoint of one family, for each family of several; return the status."""
    for found in failed.values():
        outcomes = sorted(found, key=lambda outcome: outcome.given_up)  # what was at fault, then what suffered from it
        for outcome in outcomes if asked == 1 else outcomes[:1]:
            others = (
                "" if asked == 1 or len(outcomes) == 1 else f" ({len(outcomes) - 1} more of its checkpoints failed)"
            )
            sentence = f"{outcome.job.label}: {outcome.message}{others}"
            _complain(sentence, outcome.trace, debug, hint=outcome.status == 1 and bool(outcome.trace))
    if failed and asked == 1:
        print(f"{next(iter(failed))}: nothing was written; its records are as they were.", file=sys.stderr)
    elif failed:
        print(f"{len(failed)} of {asked} families failed; their records are as they were.", file=sys.stderr)
    return max((outcome.status for outcomes in failed.values() for outcome in outcomes), default=0)


def _count(number: int, word: str) -> str:
    plural = f"{word.removesuffix('y')}ies" if word.endswith("y") else f"{word}s"
    return f"{number} {word if number == 1 else plural}"
