"""The command line. Light: torch is imported only when a checkpoint must run."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from probe import refresh, registry, store
from probe.errors import ProbeError
from probe.progress import Bar

_COMMANDS = """\
commands:
  python -m probe FAMILY [FAMILY …]      probe these families and refresh their records
  python -m probe read FAMILY VALUE      show one value of one run
  python -m probe list                   the families, their checkpoints, and which have records
  python -m probe schema                 write the records' JSON schema

`python -m probe COMMAND --help` tells more. `scripts/site` builds the pages from the records."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence and name the nearest option."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)
        self.add_argument("--debug", action="store_true", help="show the traceback of an error")

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        found, unknown = self.parse_known_intermixed_args(arguments)
        if unknown:
            options = [option for action in self._actions for option in action.option_strings]
            self.error(f"{unknown[0]} is not understood here{registry.nearest(unknown[0], options)}")
        return found

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; `{self.prog} --help` shows what it takes.\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status; every error ends as one sentence on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    commands: dict[str, Callable[[list[str]], int]] = {"read": _read, "list": _list, "schema": _schema}
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


def _whole(least: int, what: str) -> Callable[[str], int]:
    def read(text: str) -> int:
        with contextlib.suppress(ValueError):
            if int(text) >= least:
                return int(text)
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}, a whole number from {least}")

    return read


def _load_options(parser: Parser) -> None:
    parser.add_argument("--checkpoint", metavar="ID", help="Hub id, twin, saved directory, or GGUF file")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help="dtype of the weights")
    parser.add_argument("--device", default="cpu", help="torch device, or `auto` to shard (default: cpu)")
    parser.add_argument(
        "--attn",
        choices=("eager", "sdpa", "flash_attention_2", "flex_attention"),
        help="attention implementation (default: the checkpoint's)",
    )
    parser.add_argument("--offline", action="store_true", help="never reach for the network")


def _options(found: argparse.Namespace) -> refresh.Options:
    options = refresh.Options(dtype=found.dtype, device=found.device, attn=found.attn, offline=found.offline)
    refresh.prepare(options)
    return options


def _probe(given: list[str]) -> int:
    parser = Parser(
        prog="python -m probe",
        description="Measure transformer families and keep what was found as records.",
        epilog=_COMMANDS,
    )
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="model_type of a text model, as `list` shows")
    parser.add_argument("--all", action="store_true", help="every family")
    _load_options(parser)
    parser.add_argument(
        "--json", action="store_true", help="print the records and write nothing: an array, or --checkpoint's record"
    )
    parser.add_argument("--force", action="store_true", help="run even where the records are current")
    parser.add_argument(
        "--workers", type=_whole(1, "a number of workers"), default=1, metavar="N", help="processes (default: 1)"
    )
    if not given:
        parser.print_help()
        return 0
    found = parser.read(given)
    names = registry.names() if found.all else list(dict.fromkeys(found.families))
    for name in names:
        registry.get(name)
    if found.all and (found.families or found.checkpoint):
        parser.error("--all takes no family and no --checkpoint")
    if found.checkpoint and len(names) > 1:
        parser.error("--checkpoint takes one family at most")
    if not names and not found.checkpoint:
        parser.error("name a family, or say --all")

    options = _options(found)
    if found.checkpoint:
        plans = [refresh.single(found.checkpoint, names[0] if names else None)]
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
    waiting = [ready for ready in plans if not ready.current]
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


def _read(given: list[str]) -> int:
    parser = Parser(
        prog="python -m probe read",
        description="Run one checkpoint and show one value: where it is read, its shape, its statistics.",
    )
    parser.add_argument("family", metavar="FAMILY", help="model_type of a text model, as `list` shows")
    parser.add_argument("value", metavar="VALUE", help="name of a value, such as attention_output")
    _load_options(parser)
    parser.add_argument(
        "--layer", type=_whole(0, "a block"), metavar="I", help="block to read (default: the first that has the value)"
    )
    parser.add_argument("--prompt", metavar="TEXT", help="text to run (default: the probe's own)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    found = parser.read(given)
    registry.get(found.family)
    known = _known_values(found.family)
    if known and found.value.rpartition(".")[2] not in known:
        near = registry.nearest(found.value, sorted(known))
        raise ProbeError(f"No record of {found.family} has a value {found.value!r}{near}.")

    options = _options(found)
    with Bar(1, "loading the libraries") as bar:
        checkpoints = refresh.heavy("probe.checkpoints")
        if found.checkpoint:
            target = checkpoints.resolve(found.checkpoint, found.family)
        else:
            target = checkpoints.targets(found.family)[0]
        bar.starts(f"reading {found.value} on {target.id}")
        reading = refresh.heavy("probe.measure").read_value(
            target,
            found.value,
            layer=found.layer,
            prompt=found.prompt,
            attn=options.attn,
            dtype=options.dtype,
            device=options.device,
            offline=options.offline,
        )
    data = {
        "family": found.family,
        "checkpoint": target.id,
        "value": found.value,
        "location": reading.location,
        "read_at": reading.read_at,
        "shape": list(reading.shape),
        "dtype": str(reading.dtype),
        "stats": {name: number if math.isfinite(number) else None for name, number in reading.stats.items()},
        "top": [[token, probability] for token, probability in reading.top],
    }
    print(store.canonical(data) if found.json else _lines(data, reading.stats), end="")
    return 0


def _known_values(family: str) -> set[str]:
    """The names of the values in a family's records; empty where it has none that can be read."""
    known: set[str] = set()
    for path in store.record_files(family):
        with contextlib.suppress(ProbeError, KeyError, TypeError):
            data = store.read_json(path)
            known |= {row["name"] for part in (data, data.get("vision") or {}) for row in part.get("values", [])}
    return known


def _lines(data: dict[str, Any], stats: dict[str, float]) -> str:
    top = enumerate(data["top"], 1)
    rows = [
        ("read at", data["read_at"]),
        ("location", data["location"]),
        ("shape", f"[{', '.join(map(str, data['shape']))}] {data['dtype']}"),
        *((name, f"{number:.6g}") for name, number in stats.items()),
        *((f"top {place}", f"{probability:7.2%}  {token!r}") for place, (token, probability) in top),
    ]
    width = max(len(name) for name, _ in rows)
    head = f"{data['value']} of {data['checkpoint']} ({data['family']})\n"
    return head + "".join(f"  {name:<{width}}  {text}\n" for name, text in rows)


def _list(given: list[str]) -> int:
    parser = Parser(prog="python -m probe list", description="The families, their checkpoints, and which have records.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    found = parser.read(given)
    rows: list[dict[str, Any]] = []
    for family in registry.families():
        have = {path.stem for path in store.record_files(family.name)}
        listed = [*family.twins, *family.checkpoints]
        listed += sorted(have - set(map(store.file_stem, listed)))
        checkpoints = [{"id": name, "record": store.file_stem(name) in have} for name in listed]
        rows.append({"family": family.name, "title": family.title, "checkpoints": checkpoints})
    if found.json:
        sys.stdout.write(store.canonical(rows))
        return 0
    for row in rows:
        print(f"{row['family']}  {row['title']}")
        for checkpoint in row["checkpoints"]:
            print(f"  {'●' if checkpoint['record'] else '○'} {checkpoint['id']}")
    print("● has a record   ○ has none here")
    return 0


def _schema(given: list[str]) -> int:
    parser = Parser(prog="python -m probe schema", description="Write the JSON schema of a record beside the records.")
    parser.add_argument("--json", action="store_true", help="print it and write nothing")
    found = parser.read(given)
    from probe.schema import json_schema

    text = store.canonical(json_schema())
    if found.json:
        sys.stdout.write(text)
        return 0
    path = store.records_dir() / "schema.json"
    changed = store.write_all({path: text})
    print(f"{path}: {'written' if changed else 'current'}.")
    return 0
