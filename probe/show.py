"""The commands that only show: one value of a run, the records' schema."""

from __future__ import annotations

import contextlib
import math
import re
import sys
from typing import Any

from probe import jobs, misnamed, names, registry, store
from probe.arguments import Parser, add_load_options, load_options, whole
from probe.errors import ProbeError
from probe.progress import Bar


def read(given: list[str]) -> int:
    """``python -m probe read``."""
    parser = Parser(
        prog="python -m probe read",
        description="Run one checkpoint and show one value: where it is read, its shape, its statistics. The status is "
        "4 where this load has no such value.",
    )
    parser.add_argument("family", metavar="FAMILY", help="model_type of a text model, as `list` shows")
    parser.add_argument("value", metavar="VALUE", help="name of a value, such as attention_output")
    add_load_options(parser)
    parser.add_argument(
        "--layer", type=whole(0, "a block"), metavar="I", help="block to read (default: the first that has the value)"
    )
    parser.add_argument("--prompt", metavar="TEXT", help="text to run (default: the probe's own)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    found = parser.read(given)
    registry.get(found.family)
    values = _recorded_values(found.family)
    known = set().union(*values.values())
    _refuse_other_names(found.family, found.value, known, found.checkpoint)
    if known and found.value.rpartition(".")[2] not in known:
        if (said := _watched(found.family, found.value)) is not None:
            raise ProbeError(said, status=4)
        if (said := misnamed.meant(found.family, found.value, found.checkpoint or "tiny")) is not None:
            raise ProbeError(said)
        near = registry.nearest(found.value, sorted(known)) or f"; it has {', '.join(sorted(known))}"
        raise ProbeError(f"No record of {found.family} has a value {found.value!r}{near}.")
    _refuse_elsewhere(found.family, found.value, values, found.checkpoint or "tiny")

    options = load_options(found)
    checkpoints = jobs.heavy("probe.checkpoints")
    jobs.require_device(options)
    with Bar(1, "loading the libraries") as bar:
        if found.checkpoint:
            target = checkpoints.resolve(found.checkpoint, found.family, offline=options.offline)
        else:
            target = checkpoints.targets(found.family)[0]
        jobs.set_threads(target.kind)
        bar.starts(f"reading {found.value} on {target.id}")
        reading = jobs.heavy("probe.measure").read_value(
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
        "weights": "seeded" if target.kind == "tiny" else "loaded",
        "value": found.value,
        "host": reading.host,
        "borrowed_from": _lender(found.family, target.id, found.value, reading.host),
        "attn": reading.attn,
        "prompt": reading.prompt,
        "location": reading.location,
        "read_at": reading.read_at,
        "shape": list(reading.shape),
        "dtype": str(reading.dtype),
        "stats": {name: number if math.isfinite(number) else None for name, number in reading.stats.items()},
        "top": [[token, probability] for token, probability in reading.top],
    }
    print(store.canonical(data) if found.json else _lines(data, reading.stats), end="")
    return 0


def _refuse_other_names(family: str, asked: str, known: set[str], checkpoint: str | None) -> None:
    """Say what a value is called here where another tool's name was asked for, or why there is no layer_mid."""
    last = asked.rpartition(".")[2]
    other = None if last in known else names.standard(asked)
    value = other.value if other else asked if asked.startswith("vision.") else last
    called = names.called(asked, other) if other else repr(asked)
    if value == "layer_mid" and (reason := _parallel(family, checkpoint or "tiny")):
        lacking = f"{called}, which {family} does not have" if other else f"{family} has no layer_mid"
        raise ProbeError(f"{lacking}. {reason}", status=4)
    if other and value in known:
        differs = f"; {other.name} is another tensor, {other.differs}" if other.differs else ""
        raise ProbeError(f"{called}: ask for {value}{differs}.")
    if other and known and asked != value:
        raise ProbeError(f"{called}, and no record of {family} has that value.", status=4)


WEIGHTS = {
    "seeded": "a tiny twin's, drawn at random: what it predicts means nothing (--checkpoint names another)",
    "loaded": "the checkpoint's own",
}

BORROWED = "from layers[{}]: this block projects only queries"

VISION = ("image_token_mask", "patch_embeddings", "tower_output", "image_features")
"""Values of a vision encoder that has standard names."""


def _watched(family: str, asked: str) -> str | None:
    """Why a family that sees has no values of its encoder, and where that is told; None where nothing of it was asked
    for, or no record has the way of an image.
    """
    if asked not in VISION and not asked.startswith("vision."):
        return None
    for path in store.record_files(family):
        with contextlib.suppress(ProbeError, KeyError, TypeError):
            paths = list(dict.fromkeys(row["path"] for row in store.read_json(path)["images"]["stations"]))
            return (
                f"The vision encoder of {family} has no standard names: hook its modules, which are "
                f"{', '.join(paths)}; the family's page gives their shapes under “An image's way, module by module”."
            )
    return None


def _refuse_elsewhere(family: str, asked: str, values: dict[str, set[str]], checkpoint: str) -> None:
    """Say which twin has a value that the checkpoint lacks, as their records tell."""
    name = asked if asked.startswith("vision.") else asked.rpartition(".")[2]
    having = [twin for twin in registry.get(family).twins if name in values.get(twin, ())]
    if having and name not in values.get(checkpoint.replace("/", "--"), {name}):
        raise ProbeError(
            f"{checkpoint} of {family} has no {name}, and {having[0]} has one: name it with --checkpoint.", status=4
        )


def _parallel(family: str, checkpoint: str) -> str | None:
    """Why a checkpoint has no stream between attention and MLP, as its record says it."""
    try:
        data = store.read_json(store.record_path(family, checkpoint))
        found = {row["slug"]: row for row in data["experiments"]}["parallel-blocks"]
        if found["verdict"] != "yes" or any(row["name"] == "layer_mid" for row in data["values"]):
            return None
        sums = [row["expression"] for row in data["identities"] if row["name"] == "block sum"]
    except (OSError, ProbeError, KeyError, TypeError):
        return None
    statement = str(found["statement"])
    return f"Parallel block: {statement[0].lower()}{statement[1:]}" + (f" The block is {sums[0]}." if sums else "")


def _lender(family: str, checkpoint: str, value: str, host: str) -> int | None:
    """The block that the keys and values of a host come from, as the checkpoint's record tells; None for its own.

    Where a run found for every borrower that it is the last earlier block of its layer type that projects keys and
    values, a block's lender follows from its number.
    """
    place = re.fullmatch(r"model\.layers\[(\d+)\]\.self_attn", host)
    if place is None or value.rpartition(".")[2] not in ("attention_keys", "attention_values"):
        return None
    block = int(place[1])
    with contextlib.suppress(OSError, ProbeError, KeyError, TypeError, IndexError):
        data = store.read_json(store.record_path(family, checkpoint))
        found = {row["slug"]: row for row in data["experiments"]}["borrowed-kv"]
        if block in (found["blocks"] or []) and found["measured"]["last_of_its_kind"]:
            kinds = data["layer_types"]
            own = [i for i in range(block) if kinds[i] == kinds[block] and i not in found["blocks"]]
            return own[-1]
    return None


def _recorded_values(family: str) -> dict[str, set[str]]:
    """The names of the values in each of a family's records, by its file's stem; one that is broken is left out."""
    found: dict[str, set[str]] = {}
    for path in store.record_files(family):
        with contextlib.suppress(ProbeError, KeyError, TypeError, AttributeError):
            data = store.read_json(path)
            seen = [row["name"] for row in (data.get("vision") or {}).get("values", [])]
            found[path.stem] = {*(row["name"] for row in data.get("values", [])), *seen, *map("vision.{}".format, seen)}
    return found


def _lines(data: dict[str, Any], stats: dict[str, float]) -> str:
    top = enumerate(data["top"], 1)
    rows = [
        ("weights", WEIGHTS[data["weights"]]),
        ("host", data["host"]),
        *([("borrowed", BORROWED.format(data["borrowed_from"]))] if data["borrowed_from"] is not None else []),
        ("prompt", repr(data["prompt"])),
        ("attention", data["attn"]),
        ("read at", data["read_at"]),
        ("location", data["location"]),
        ("shape", f"[{', '.join(map(str, data['shape']))}] {data['dtype']}"),
        *((name, f"{number:.6g}") for name, number in stats.items()),
        *((f"top {place}", f"{probability:7.2%}  {token!r}") for place, (token, probability) in top),
    ]
    width = max(len(name) for name, _ in rows)
    head = f"{data['value']} of {data['checkpoint']} ({data['family']})\n"
    return head + "".join(f"  {name:<{width}}  {text}\n" for name, text in rows)


def schema(given: list[str]) -> int:
    """``python -m probe schema``."""
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
