"""Reading the records, without torch: from this project's folder, from another, or from a published site.

    from probe import reader

    record = reader.load("llama")
    for value in reader.values(record, host="model.layers[i].mlp"):
        print(value.name, reader.module_path(value, block=3))

A record is a `probe.schema.Record`, whose fields are documented there and in ``records/schema.json``. ``source`` is a
folder of records or the address of a published site; without it, the folder that the probe writes to.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from probe.errors import ProbeError
from probe.index import Index
from probe.registry import nearest
from probe.render.catalog import Family, read_family
from probe.schema import Part, Record, Value
from probe.store import file_stem, read_record, records_dir

Source = str | Path | None
Fits = TypeVar("Fits", bound=Part)
TIMEOUT = 30
"""Seconds that a site may take to answer."""


def families(source: Source = None) -> list[str]:
    """The families that have a record, by name. Raises ProbeError where there are no records at ``source``."""
    if _is_site(source):
        return [entry.family for entry in index(str(source)).families]
    return sorted(path.name for path in _folder(source).iterdir() if any(path.glob("[!.]*.json")))


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
        path = _folder(source) / family / f"{file_stem(checkpoint)}.json"
        if not path.is_file():
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
    """
    for part in (record, record.vision):
        for value in part.values if part else ():
            if value.blocks == [] or value.location is None:
                continue
            if name not in (None, value.name) or host not in (None, value.host):
                continue
            if block is None or block in (value.blocks or ()):
                yield value


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
    if not folder.is_dir():
        raise ProbeError(f"There are no records at {folder}; name their folder or a site's address.")
    return folder


def _family(family: str, source: Source) -> Family:
    folder = _folder(source) / family
    if not (found := read_family(folder)):
        raise _unknown("family", family, families(source), source)
    return found


def _fitting(model: type[Fits], site: str, path: str) -> Fits:
    """A file of a site, validated."""
    try:
        return model.model_validate(_fetch(site, path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ProbeError(
            f"{_site(site)}{path} does not fit the schema of this version ({where}: {first['msg']}); use the version "
            "that the site was made with."
        ) from error


def _fetch(site: str, path: str) -> Any:
    address = _site(site) + path
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as answer:
            return json.loads(answer.read())
    except (urllib.error.URLError, TimeoutError) as error:
        raise ProbeError(f"{address} cannot be read ({getattr(error, 'reason', error)}).") from error
    except ValueError as error:
        raise ProbeError(f"{address} is not JSON ({error}); is it a site of this project?") from error


def _unknown(what: str, name: str, known: list[str], source: Source) -> ProbeError:
    where = source if source is not None else records_dir()
    return ProbeError(f"There is no record of the {what} {name!r} at {where}{nearest(name, known)}.")
