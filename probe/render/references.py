"""What a note writes instead of typing a number, and instead of saying what its code ran on.

``{{ sizes.head_dim of google/gemma-4-E2B-it }}`` becomes the number that this checkpoint's record holds, when the
page is built. The family is the note's own; a page that is of no family names it before the checkpoint
(``{{ sizes.num_heads of llama tiny }}``). The subjects are::

    sizes.NAME, vision.sizes.NAME            {{ sizes.num_heads of ID }}
    block_sizes.NAME[i]                      {{ block_sizes.head_dim[4] of ID }}
    config.ROW, vision_config.ROW            {{ config.sliding_window of ID }}
    layer_types.KIND                         {{ layer_types.full_attention of ID }}: the blocks of that kind
    fact NAME, fact NAME.MEASURED            {{ fact score_scale of ID }}, {{ fact norm_epsilon.added of ID }}
    quirk SLUG.MEASURED, vision quirk …      {{ quirk softcapped-logits.cap of ID }}; `blocks` gives where it holds

``<!-- on: tiny-moe -->`` says what the blocks of code after it run on, until the next one; the page says it in words.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from probe.errors import ProbeError
from probe.numerals import number
from probe.prompt import PROMPT
from probe.render.recipes.setup import SETUP
from probe.snippets.code import ON
from probe.store import ROOT, file_stem, read_json, records_dir

REFERENCE = re.compile(r"\{\{\s*(.*?)\s*\}\}", re.S)

_FENCED = re.compile(r"(^```.*?^```$)", re.S | re.M)


def resolved(path: Path, text: str | None = None, page: Callable[[str], str | None] = lambda _: None) -> str:
    """A note's Markdown with every reference replaced and every marker in words.

    Args:
        text: stands in the file's place.
        page: the address of a checkpoint's page, to which what a block of code stands on is linked; None for a
            checkpoint whose page is not linked.

    Raises:
        ProbeError: a reference that no record answers; names the file and the reference.
    """
    family = path.name.partition(".")[0]
    try:
        parts = _FENCED.split(path.read_text(encoding="utf-8") if text is None else text)
    except UnicodeDecodeError as error:
        raise ProbeError(f"{path} is no text in UTF-8 ({error.reason}); save it as that.") from error
    for index in range(0, len(parts), 2):
        prose = REFERENCE.sub(lambda match: _answer(path, family, match), parts[index])
        parts[index] = ON.sub(partial(_caption, page=page, tower=path.name.endswith(".vision.md")), prose)
    return "".join(parts)


def _caption(match: re.Match[str], page: Callable[[str], str | None], tower: bool) -> str:
    opening = not match.string[: match.start()].strip()
    attn = f", under {match['attn']}" if match["attn"] else ""
    dtype = " in float32" if "/" in match["checkpoint"] else ""
    what = f"`{match['checkpoint']}`{dtype}{attn}"
    if not opening:
        return f"*Ran on {what}:*"
    made = "`model`, `prompt` and `image`" if tower else f'`model`; its `prompt` is text alone, "{PROMPT}"'
    setup, address = "“What the snippets stand on”", page(match["checkpoint"])
    setup = f"[{setup}]({address}#{SETUP})" if address else setup
    start = f"{setup}, on that checkpoint's page, makes its {made}."
    return f"*The code below ran on {what}, and on what a line above it names. {start}*"


def _answer(path: Path, family: str, match: re.Match[str]) -> str:
    subject, of, whose = " ".join(match[1].split()).rpartition(" of ")
    named, _, checkpoint = whose.rpartition(" ")
    family = named or family
    if not of:
        raise ProbeError(f"{path.name}: {match[0]} names no checkpoint; write {{{{ sizes.NAME of ID }}}}.")
    try:
        file = Path(family) / f"{file_stem(checkpoint)}.json"
    except ProbeError as error:
        raise ProbeError(f"{path.name}: {match[0]}: {error}") from error
    found = [directory / file for directory in _directories() if (directory / file).is_file()]
    for record in found:
        answer = _lookup(_read(record, record.stat().st_mtime_ns), subject)
        if answer is not None:
            return _written(answer)
    if not found:
        raise ProbeError(f"{path.name}: {match[0]} asks for a checkpoint that has no record {file}; probe it first.")
    raise ProbeError(f"{path.name}: {match[0]} finds nothing in {file}; look up there what it is called.")


def _directories() -> tuple[Path, ...]:
    """The records the site is built from, then the committed ones, which the notes were written beside."""
    return tuple(dict.fromkeys((records_dir().resolve(), ROOT / "site_src" / "records")))


@lru_cache(maxsize=64)
def _read(path: Path, changed: int) -> dict[str, Any]:
    return read_json(path)


def _lookup(record: dict[str, Any], subject: str) -> Any:
    """What the record holds, None where it holds nothing of that name."""
    if subject.startswith(("vision quirk ", "vision.")):
        record, subject = record.get("vision") or {}, re.sub(r"^vision[ .]", "", subject)
    section, _, rest = subject.partition(" ")
    slug, _, name = rest.partition(".")
    if section == "fact":
        fact: dict[str, Any] = next((fact for fact in record.get("facts", []) if fact["name"] == slug), {})
        return _measured(fact, name) if name else fact.get("value")
    if section == "quirk":
        quirk: dict[str, Any] = next((quirk for quirk in record.get("experiments", []) if quirk["slug"] == slug), {})
        return _spans(quirk.get("blocks")) if name == "blocks" else _measured(quirk, name)
    section, _, name = subject.partition(".")
    if section in ("config", "vision_config"):
        return next((row["value"] for row in record.get(section) or [] if row["name"] == name), None)
    if section == "layer_types":
        return _spans([index for index, kind in enumerate(record.get("layer_types", [])) if kind == name])
    if section == "block_sizes" and (match := re.fullmatch(r"(\w+)\[(\d+)\]", name)):
        blocks = record.get("block_sizes", {}).get(match[1], [])
        return blocks[int(match[2])] if int(match[2]) < len(blocks) else None
    return record.get("sizes", {}).get(name) if section == "sizes" else None


def _measured(row: dict[str, Any], name: str) -> Any:
    """What an experiment or a fact measured, blocks in words; None where that is nothing."""
    found = row.get("measured", {}).get(name)
    return _spans(found) if name == "blocks" else None if found == [] else found


def _spans(blocks: list[int] | None) -> str | None:
    """``15 to 34``, ``4, 9 and 14``; None where there are none."""
    if not blocks:
        return None
    if len(blocks) > 2 and blocks == list(range(blocks[0], blocks[-1] + 1)):
        return f"{blocks[0]} to {blocks[-1]}"
    *first, last = map(str, blocks)
    return f"{', '.join(first)} and {last}" if first else last


def _written(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_written, value))
    if isinstance(value, bool):
        return str(value).lower()
    return number(value) if isinstance(value, (int, float)) else str(value)
