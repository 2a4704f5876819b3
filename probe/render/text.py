"""Words and figures as the pages print them: lists of blocks, numbers, anchors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup, escape

from probe.numerals import number
from probe.schema import Lack, Value

_NUMBER = re.compile(r"(?<![\w.,/-])(?:\d{1,3}(?:,\d{3})+|\d{5,}(?:\.0)?|\d+(?:\.\d+)?e[-+]\d+)(?![\w/]|[.,]\d)")
"""What stands in a record's sentence and may be spelled otherwise than a page spells numbers: large ones and powers."""

_POWER = re.compile(r"(?<![^\s(±])\d+(?:\.\d+)?e-\d+(?![^\s.,;:)<])")
_CODE = re.compile(r"<code>[^<]{24,}</code>")
_LONG = re.compile(r"[^\s<>]{24,}")
_JOINT = re.compile(r"\.(?=[^<{\d])|_(?=[^<\d])")
_INDEXED = re.compile(r'<span class="whole">[^<]*</span>|<[^>]*>|[\w.]*\.\{\w+\}[\w.{}]*')
"""A path with the number of a block in it, or what is none: a tag, and what is whole already."""
_NAME_AND_INDEX = re.compile(r"\w+\.\{\w+\}")


def anchor(host: str, name: str) -> str:
    """The id of a value's row, e.g. ``v-layers-self_attn-attention_keys``."""
    parts = [p.replace("[i]", "") for p in host.split(".") if p != "model"]
    return "-".join(["v", *parts, name])


def row_id(value: Value, among: Sequence[Value]) -> str:
    """The id of a value's row. Where several rows of a record, ``among``, have the value's name and host, the first has
    the plain `anchor`, and each other one its host's class after it, with its number where classes are alike too."""
    plain = anchor(value.host, value.name)
    same = [other for other in among if (other.host, other.name) == (value.host, value.name)]
    if len(same) < 2 or value == same[0]:
        return plain
    alike = [other for other in same if other.module == value.module]
    number = alike.index(value) + 1
    return f"{plain}-{value.module}" + (f"-{number}" if number > 1 or value.module == same[0].module else "")


def quirk_id(slug: str, vision: bool) -> str:
    """The id of a quirk's chip on a page, which may have one for the text model and one for the vision encoder."""
    return f"q-{'vision-' if vision else ''}{slug}"


def value_url(name: str) -> str:
    """The page of a value, from the site's root."""
    return f"values/{name}/"


def quirk_url(slug: str) -> str:
    """The page of a quirk, from the site's root."""
    return f"quirks/{slug}/"


def block_list(blocks: Sequence[int]) -> str:
    """Block indices as few words: ``0–3, 5–8``, or ``3, 7, … 47 (every 4th)`` for a regular step."""
    found = sorted(blocks)
    if len(found) > 3 and len(steps := {b - a for a, b in zip(found, found[1:], strict=False)}) == 1:
        [step] = steps
        if step > 1:
            return f"{found[0]}, {found[1]}, … {found[-1]} (every {ordinal(step)})"
    runs: list[list[int]] = []
    for block in found:
        if runs and block == runs[-1][1] + 1:
            runs[-1][1] = block
        else:
            runs.append([block, block])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)


def some_blocks(blocks: Sequence[int] | None, total: int) -> str:
    """``every block``, ``no block``, ``blocks 0–3`` or ``all but 3, 7``; empty for a value of the whole model."""
    if blocks is None:
        return ""
    if not blocks:
        return "no block"
    if len(blocks) == total:
        return "every block"
    here = block_list(blocks)
    others = block_list(sorted(set(range(total)) - set(blocks)))
    if len(here) > 30 > len(others):
        return f"all but {others}"
    return ("block " if len(blocks) == 1 else "blocks ") + here


def prose(text: str) -> Markup:
    """A sentence as HTML, with what stands between backticks set as code and numbers as pages write them."""
    parts = [
        Markup("<code>{}</code>").format(_indexed(str(escape(part)))) if k % 2 else escape(_respelled(part))
        for k, part in enumerate(text.split("`"))
    ]
    return Markup("").join(parts) if len(parts) % 2 else Markup(escape(text))


def condition(value: Value, attn: str) -> str | None:
    """Why a load does not serve a value: what to do first, not the value or the operation that is missing.

    Args:
        attn: the attention implementation of a default load.
    """
    if value.needs is None or value.lack is None:
        return value.reason
    return f"Load with attn_implementation='{value.needs}': under '{attn}' {lacking(value.lack, value.module)}."


def lacking(lack: Lack, module: str, several: bool = False) -> str:
    """What stands against a value of a module, or against several, under another attention than the one it needs."""
    if lack == "fused kernel":
        return f"the attention is one fused kernel that never forms {'them' if several else 'it'}"
    return f"the forward of {module} goes another way, on which {'they are' if several else 'it is'} not formed"


def breakable(name: str) -> Markup:
    """A name as HTML that may break behind each dot and underscore, but for one before a number or a block's index."""
    return _indexed(_JOINT.sub(r"\g<0><wbr>", str(escape(name))))


def cell(html: str | Markup) -> Markup:
    """What stands in a narrow cell, its long names in code `breakable`, its powers `whole`."""
    text = str(escape(html))
    return whole(Markup(_CODE.sub(_long_names_breakable, text) if "<code>" in text else text))


def whole(html: str | Markup) -> Markup:
    """Words as HTML in which no line ends within a power of ten, as it may behind a hyphen, or before an index."""
    text = str(escape(html))
    return _indexed(_POWER.sub(r'<span class="whole">\g<0></span>', text) if "e-" in text else text)


def _indexed(html: str) -> Markup:
    """HTML whose paths break behind a dot before a name, as in ``model.layers.{i}.mlp``, and not before the index."""
    return Markup(_INDEXED.sub(_joints_of_path, html) if ".{" in html else html)


def _joints_of_path(found: re.Match[str]) -> str:
    path = found[0]
    if path.startswith("<"):
        return path
    return _NAME_AND_INDEX.sub(r'<span class="whole">\g<0></span>', re.sub(r"\.(?=[^\W\d])", ".<wbr>", path))


def _long_names_breakable(code: re.Match[str]) -> str:
    return _LONG.sub(lambda name: _JOINT.sub(r"\g<0><wbr>", name[0]), code[0])


def ordinal(n: int) -> str:
    suffix = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{suffix}"


def figure(value: Any) -> str:
    """A number, a flag, a list or text, in the form of the config cards and facts."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, (list, tuple)):
        runs: list[tuple[str, int]] = []
        for text in map(figure, value):
            runs = [*runs[:-1], (text, runs[-1][1] + 1)] if runs and runs[-1][0] == text else [*runs, (text, 1)]
        return ", ".join(text if n == 1 else f"{text} × {n}" for text, n in runs) or "[]"
    return str(value) or '""'


def answer(value: float) -> str:
    """The value of a fact: a number, or yes or no."""
    return ("yes" if value else "no") if isinstance(value, bool) else figure(value)


def _respelled(sentence: str) -> str:
    """A record's sentence with its numbers as `number` writes them."""
    return _NUMBER.sub(lambda found: number(_parsed(found[0]), None), sentence)


def _parsed(text: str) -> float:
    plain = text.replace(",", "")
    return int(plain) if plain.isdigit() else float(plain)


def parameters(n: int) -> str:
    """``5.12 B``, ``134.5 M`` or the number itself."""
    for size, unit in ((10**9, "B"), (10**6, "M")):
        if n >= size:
            return f"{n / size:.4g} {unit}"
    return f"{n:,}"


def words(name: str) -> str:
    """A machine name as words: ``full_attention`` as ``full attention``."""
    return re.sub(r"[_-]+", " ", name).strip()


def plural(n: int, one: str, many: str | None = None) -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"
