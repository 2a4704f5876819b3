"""What records tell of a word that is no value's name: a module's path, or a field of the model's output."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from probe import store
from probe.errors import ProbeError

Row = dict[str, Any]
SIDES = {"in": "input", "out": "output"}


def meant(family: str, asked: str, checkpoint: str) -> str | None:
    """A sentence on the field or the modules that a word names, from the checkpoint's record, else from the family's
    first that has them; None where it names none.
    """
    own = store.record_path(family, checkpoint)
    for path in sorted(store.record_files(family), key=lambda each: each != own):
        with contextlib.suppress(ProbeError, KeyError, TypeError):
            record = store.read_json(path)
            if said := _field(record["outputs"], asked) or _modules(record, asked):
                return said
    return None


def _field(outputs: list[Row], asked: str) -> str | None:
    """What the entries of a field of the output are, and the flag that fills it."""
    rows = [row for row in outputs if asked in (row.get("field"), row["flag"]) and row.get("equals")]
    if not rows:
        return None
    row = rows[-1]
    parts = []
    for part in row["equals"]:
        at = f"entr{'y' if len(part['entries']) == 1 else 'ies'} {_span(part['entries'])}"
        blocks = f" of block{'s' if len(part['blocks']) > 1 else ''} {_span(part['blocks'])}" if part["blocks"] else ""
        parts.append(f"{at}: {part.get('made') or part['value'].rpartition('.')[2]}{blocks}")
    under = " under eager attention" if row["load"] == "eager" else ""
    return (
        f"{row['field']!r} is a field of the model's output, which {row['flag']}=True fills{under}: in the run "
        f"{'; '.join(parts)}. Ask for one of these."
    )


def _span(numbers: list[int]) -> str:
    """Numbers in a row as a range."""
    if numbers == list(range(numbers[0], numbers[-1] + 1)) and len(numbers) > 2:
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))


def _modules(record: Row, asked: str) -> str | None:
    """The modules whose path is a word, or ends in it, each with the values that are read there."""
    wanted = re.sub(r"(?<=\.)\d+(?=\.|$)|(?<=\[)\d+(?=\])", "{i}", asked).replace("[{i}]", ".{i}")
    paths = dict.fromkeys(row["path"] for row in record["returned"])
    found = [path for path in paths if path and (path == wanted or path.endswith(f".{wanted}"))]
    if not found or not wanted:
        return None
    said = [f"{path} ({', '.join(_values(record, path)) or 'no value is read there'})" for path in found]
    return f"{asked!r} is a module's path, and no value's name: {'; '.join(said)}. Ask for a value, or hook the module."


def _values(record: Row, path: str) -> Iterator[str]:
    """The values that a module takes or returns: ``output: attention_output``."""
    told: dict[str, None] = {}
    for row in record["values"]:
        place = row.get("hf") or {}
        if place.get("path") == path and place.get("side") in SIDES and row.get("blocks") != []:
            told[f"{SIDES[place['side']]}: {row['name']}"] = None
    for row in record["returned"]:
        if row["path"] == path:
            values = [element["value"] for element in row["elements"] if element.get("value")]
            told.update({f"output: {value.rpartition('.')[2]}": None for value in values})
            if row.get("reads"):
                told[f"input: what {row['reads']} returns"] = None
    yield from told
