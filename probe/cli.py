"""The command line. Light: torch is imported only when a checkpoint must run."""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from probe import refresh, registry, show, store
from probe.arguments import Parser, add_load_options, load_options, whole
from probe.errors import ProbeError

_COMMANDS = """\
commands:
  python -m probe FAMILY [FAMILY …]      probe these families and refresh their records
  python -m probe read FAMILY VALUE      show one value of one run
  python -m probe list                   the families, their checkpoints, and which have records
  python -m probe schema                 write the records' JSON schema

`python -m probe COMMAND --help` tells more. `scripts/site` builds the pages from the records."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status; every error ends as one sentence on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    commands: dict[str, Callable[[list[str]], int]] = {"read": show.read, "list": show.families, "schema": show.schema}
    debug = "--debug" in given
    try:
        command = commands.get(given[0]) if given else None
        status = command(given[1:]) if command else _probe(given)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("\nStopped. The records are as they were.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ProbeError as error:
        _complain(str(error), traceback.format_exc(), debug)
        return error.status
    except Exception as error:
        _complain(f"This went wrong, unexpectedly: {_words(error)}", traceback.format_exc(), debug, hint=True)
        return 1


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".replace("\n", " ").strip(": ")


def _complain(sentence: str, trace: str, debug: bool, hint: bool = False) -> None:
    if debug:
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
    if not given:
        parser.print_help()
        return 0
    found = parser.read(given)
    names = registry.names() if found.all else list(dict.fromkeys(found.families))
    if found.all and (found.families or found.checkpoint):
        parser.error("--all takes no family and no --checkpoint")
    if found.checkpoint and len(names) > 1:
        parser.error("--checkpoint takes one family at most")
    if not names and not found.checkpoint:
        parser.error("name a family, or say --all")

    options = load_options(found)
    if not found.checkpoint and not found.json and (found.dtype or found.attn or found.device != "cpu"):
        print(
            "These records will be of another load than the published ones; a plain run makes those again.",
            file=sys.stderr,
        )
    if found.checkpoint:
        for name in names:
            registry.get(name)
        plans = [refresh.single(found.checkpoint, names[0] if names else None, options)]
    else:
        plans = [refresh.plan(name, options, found.force) for name in names]
    return (_print if found.json else _write)(plans, options, found)


def _print(plans: list[refresh.Plan], options: refresh.Options, found: argparse.Namespace) -> int:
    records: list[Any] = []
    failed: list[refresh.Outcome] = []
    for ready in plans:
        refresh.find_jobs(ready)
    for ready, outcomes in refresh.run(plans, options, found.workers):
        failed += [outcome for outcome in outcomes if outcome.text is None]
        texts = {outcome.job.checkpoint: outcome.text for outcome in outcomes if outcome.text is not None}
        found_here = {checkpoint: json.loads(text) for checkpoint, text in texts.items()}
        for checkpoint in ready.kept:
            found_here[checkpoint] = store.read_json(store.record_path(ready.family, checkpoint))
        records += [found_here[checkpoint] for checkpoint in sorted(found_here)]
    _failures(failed, found.debug)
    if not failed:
        sys.stdout.write(store.canonical(records[0] if found.checkpoint else records))
    return max((outcome.status for outcome in failed), default=0)


def _write(plans: list[refresh.Plan], options: refresh.Options, found: argparse.Namespace) -> int:
    status = 0
    for ready in plans:
        store.clean(store.records_dir() / ready.family)
        refresh.find_jobs(ready)
        if ready.current:
            print(f"{ready.family}: {_count(len(ready.kept), 'record')} current; --force probes again.")
        for checkpoint in ready.spared:
            print(f"{ready.family}: the record of {checkpoint} is of real weights, not installed here; kept.")
    waiting = [ready for ready in plans if not ready.current]
    refresh.require_folders(waiting)
    for ready, outcomes in refresh.run(waiting, options, found.workers) if waiting else ():
        failed = [outcome for outcome in outcomes if outcome.text is None]
        if failed:
            _failures(failed, found.debug)
            print(f"{ready.family}: nothing was written; its records are as they were.", file=sys.stderr)
            status = max(status, *(outcome.status for outcome in failed))
            continue
        changed = refresh.keep(ready, outcomes, options)
        probed, written = _count(len(outcomes), "checkpoint"), _count(len(changed), "record")
        print(f"{ready.family}: {probed} probed, {written} changed.")
        for checkpoint in changed:
            print(f"  {store.record_path(ready.family, checkpoint)}")
    if waiting and not status:
        print("`scripts/site --no-probe` shows the pages.")
    return status


def _failures(failed: list[refresh.Outcome], debug: bool) -> None:
    for outcome in failed:
        unexpected = outcome.status == 1
        _complain(f"{outcome.job.label}: {outcome.message}", outcome.trace, debug, hint=unexpected)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
