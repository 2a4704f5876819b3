"""Reading the records, without torch: from this project's folder, from another, or from a published site.

    from probe import reader

    record = reader.load("llama")
    for value in reader.values(record, host="model.layers[i].mlp"):
        print(value.name, reader.module_path(value, block=3))

A record is a `probe.schema.Record`, whose fields are documented there and in ``records/schema.json``. ``source`` is a
folder of records or the address of a published site; without it, the folder that the probe writes to.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import urllib.request
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from probe.errors import ProbeError
from probe.index import Index
from probe.registry import meant, nearest
from probe.render.catalog import Family, read_family
from probe.schema import Part, Record, Value
from probe.store import file_stem, first_misfit, read_json, read_record, records_dir

Source = str | Path | None
Fits = TypeVar("Fits", bound=Part)
TIMEOUT = 30
"""Seconds that a site may take to answer."""


def families(source: Source = None) -> list[str]:
    """The families that have a record, by name. Raises ProbeError where there are no records at ``source``."""
    if _is_site(source):
        return [entry.family for entry in index(str(source)).families]
    return sorted({path.parent.name for path in _folder(source).glob("[!.]*/[!.]*.json")})


def checkpoints(family: str, source: Source = None) -> list[str]:
    """The ids of a family's checkpoints that have a record, in the order of its page.

    Raises:
        ProbeError: there is no such family.
    """
    if _is_site(source):
        found = {entry.family: entry for entry in index(str(source)).families}
        if family not in found:
            raise _unknown("family", family, list(found), source)
        return [checkpoint.id for checkpoint in found[family].checkpoints]
    return [stored.record.checkpoint.id for stored in _family(family, source).in_order]


def load(family: str, checkpoint: str | None = None, source: Source = None) -> Record:
    """The record of a checkpoint, or of the one that the family's own page shows.

    Raises:
        ProbeError: there is no such family or checkpoint, or its record does not fit the schema.
    """
    if not _is_site(source):
        if checkpoint is None:
            return _family(family, source).default.record
        path = _of_family(family, source) / f"{file_stem(checkpoint)}.json" if checkpoint else None
        if path is None or not path.is_file():
            raise _unknown("checkpoint", checkpoint, checkpoints(family, source), source)
        return read_record(path)
    found = {entry.family: entry for entry in index(str(source)).families}
    if family not in found:
        raise _unknown("family", family, list(found), source)
    entry = found[family]
    for known in entry.checkpoints:
        if known.id == checkpoint or (checkpoint is None and known.url == entry.url):
            return _fitting(Record, str(source), known.record)
    raise _unknown("checkpoint", str(checkpoint), [known.id for known in entry.checkpoints], source)


def values(
    record: Record, *, name: str | None = None, host: str | None = None, block: int | None = None
) -> Iterator[Value]:
    """The values that a checkpoint serves, those of its vision encoder last.

    Args:
        name: only values of this standard name.
        host: only values of this host, e.g. ``model.layers[i].self_attn``.
        block: only values that this block has; values of the whole model are left out.

    Raises:
        ProbeError: no record has a value of that name, or such a host, or the checkpoint has no such block.
    """
    every = [value for part in (record, record.vision) for value in (part.values if part else ())]
    _require_known("value", name, {value.name for value in every})
    _require_known("host", host, {value.host for value in every})
    blocks = max(len(part.blocks) for part in (record, record.vision) if part)
    if block is not None and block not in range(blocks):
        raise ProbeError(f"{record.checkpoint.id} has no block {block}; it has {blocks}, counted from 0.")
    return _values(record, name, host, block)


def _values(record: Record, name: str | None, host: str | None, block: int | None) -> Iterator[Value]:
    for part in (record, record.vision):
        for value in part.values if part else ():
            if value.blocks == [] or value.location is None:
                continue
            if name not in (None, value.name) or host not in (None, value.host):
                continue
            if block is None or block in (value.blocks or ()):
                yield value


def _require_known(what: str, word: str | None, here: set[str]) -> None:
    """Raises ProbeError for a word that neither this record has nor any of those that the probe writes to."""
    if word is None or word in here or word in _words(str(records_dir()))[what]:
        return
    index = " (write [i] for a block's index, and give it as block=)" if re.search(r"\[\d+\]", word) else ""
    near = index or nearest(word, sorted(here)) or f"; this one has {', '.join(sorted(here))}"
    raise ProbeError(f"No record has a {what} {word!r}{near}.")


@lru_cache(maxsize=4)
def _words(folder: str) -> dict[str, set[str]]:
    """The names and the hosts of the values of all records in a folder; those of a record that is none aside."""
    found: dict[str, set[str]] = {"value": set(), "host": set()}
    for path in Path(folder).glob("*/[!.]*.json"):
        with contextlib.suppress(ProbeError, KeyError, TypeError, AttributeError):
            data = read_json(path)
            for row in (row for part in (data, data.get("vision") or {}) for row in part["values"]):
                found["value"].add(row["name"])
                found["host"].add(row["host"])
    return found


def module_path(value: Value, block: int | None = None) -> str | None:
    """What ``get_submodule`` takes for the module at whose input, output or inside the value is; None for no place.

    Args:
        block: the block's index, for a value of a block.

    Raises:
        ProbeError: a value of a block and no index, or an index of a block that does not have the value.
    """
    if value.hf is None:
        return None
    if "{i}" not in value.hf.path:
        return value.hf.path
    if block is None:
        raise ProbeError(f"{value.host}.{value.name} is a value of a block; say which with block=.")
    if block not in (value.blocks or ()):
        raise ProbeError(f"Block {block} does not have {value.host}.{value.name}; its blocks are in value.blocks.")
    return value.hf.path.replace("{i}", str(block))


def index(site: str) -> Index:
    """The index of a published site. Raises ProbeError where the site does not answer or has none that fits."""
    return _fitting(Index, site, "index.json")


def _is_site(source: Source) -> bool:
    return isinstance(source, str) and source.startswith(("http://", "https://"))


def _site(source: Source) -> str:
    return str(source).rstrip("/") + "/"


def _folder(source: Source) -> Path:
    folder = Path(source) if source is not None else records_dir()
    if source == "" or not folder.is_dir():
        raise ProbeError(f"There are no records at {folder}; name their folder or a site's address.")
    return folder


def _of_family(family: str, source: Source) -> Path:
    """The folder of a family's records."""
    if family not in (known := families(source)):
        raise _unknown("family", family, known, source)
    return _folder(source) / family


def _family(family: str, source: Source) -> Family:
    found = read_family(_of_family(family, source))
    assert found, f"{family} has records"
    return found


def _fitting(model: type[Fits], site: str, path: str) -> Fits:
    """A file of a site, validated."""
    try:
        return model.model_validate(_fetch(site, path))
    except ValidationError as error:
        raise ProbeError(
            f"{_site(site)}{path} does not fit the schema of this version ({first_misfit(error)}); use the version "
            "that the site was made with."
        ) from error


def _fetch(site: str, path: str) -> Any:
    address = _site(site) + path
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as answer:
            text = answer.read()
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise ProbeError(f"{address} cannot be read ({getattr(error, 'reason', error)}).") from error
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProbeError(f"{address} is not JSON ({error}); is it a site of this project?") from error


def _unknown(what: str, name: str, known: list[str], source: Source) -> ProbeError:
    where = source if source is not None else records_dir()
    near = (what == "family" and meant(name)) or nearest(name, known)
    near = near or f"; `reader.{'families' if what == 'family' else 'checkpoints'}` lists what there is"
    return ProbeError(f"There is no record of the {what} {name!r} at {where}{near}.")
