"""The printout of a model, highlighted and folded: native modules, standard names and values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from markupsafe import Markup, escape

from probe.schema import Record

VALUE = re.compile(r"^\((?P<name>[\w.]+)\)(?P<arrow> ->)? ?(?P<layout>[A-Z]\w*)? ?(?P<dims>\[[^\]]*\])?(?P<rest>: .*)$")
MODULE = re.compile(r"^\((?P<name>[^)]+)\): (?P<times>\d+ x )?(?P<cls>\w+)\((?P<args>.*)$")
ROOT = re.compile(r"^(?P<cls>\w+)\((?P<args>.*)$")
STANDARD = {
    "embed_tokens",
    "layers",
    "norm",
    "lm_head",
    "vision",
    "projector",
    "patch_embed",
    "router",
    "experts",
    "shared_experts",
}


def printout(record: Record) -> Markup:
    """The record's printout as nested, foldable lines. Runs of blocks after the first are folded."""
    roles = {v.name for v in [*record.values, *(record.vision.values if record.vision else [])]}
    standard = STANDARD | {
        part.replace("[i]", "") for v in record.values for part in v.host.split(".") if part != "model"
    }
    lines = record.printout.rstrip("\n").split("\n")
    return Markup("".join(_fold(lines, standard, roles)))


def modules(record: Record) -> list[str]:
    """The dotted path of every module that the printout names, with ``{i}`` for an index, each once."""
    above: list[tuple[int, str]] = []
    found: dict[str, None] = {}
    for line in record.printout.split("\n"):
        body = line.lstrip(" ")
        match = MODULE.match(body)
        if match is None:
            continue
        indent = len(line) - len(body)
        while above and above[-1][0] >= indent:
            above.pop()
        above.append((indent, "{i}" if match["name"][0].isdigit() else match["name"]))
        found[".".join(name for _, name in above)] = None
    return list(found)


def _fold(lines: Sequence[str], standard: set[str], values: set[str]) -> list[str]:
    out: list[str] = []
    runs: dict[int, int] = {}
    for k, line in enumerate(lines):
        body = line.lstrip(" ")
        indent = len(line) - len(body)
        following = lines[k + 1] if k + 1 < len(lines) else ""
        deeper = len(following) - len(following.lstrip(" ")) > indent
        text = " " * indent + _line(body, frozenset(standard), frozenset(values))
        if deeper:
            is_run = bool(re.match(r"\(\d", body))
            runs[indent] = runs.get(indent, 0) + 1 if is_run else 0
            shut = is_run and runs[indent] > 1
            out.append(f"<details{'' if shut else ' open'}><summary>{text}</summary>")
        elif body == ")" and indent < (len(lines[k - 1]) - len(lines[k - 1].lstrip(" "))):
            out.append(f"<div>{text}</div></details>")
        else:
            out.append(f"<div>{text}</div>")
    return out


@lru_cache(maxsize=4096)
def _line(body: str, standard: frozenset[str], values: frozenset[str]) -> str:
    match = MODULE.match(body)
    if match and match["name"] not in values:
        kind = "s" if match["name"] in standard else "n"
        times = f"<i>{match['times']}</i>" if match["times"] else ""
        return f'(<b class="{kind}">{escape(match["name"])}</b>): {times}<u>{match["cls"]}</u>({escape(match["args"])}'
    match = VALUE.match(body)
    if match:
        layout = f"<em>{match['layout']}</em> " if match["layout"] else ""
        arrow = " → " if match["arrow"] else ""
        dims = escape(match["dims"] or "")
        return f'(<b class="v">{match["name"]}</b>){arrow}{layout}{dims}<s>{escape(match["rest"])}</s>'
    match = ROOT.match(body)
    if match:
        return f"<u>{match['cls']}</u>({escape(match['args'])}"
    return str(escape(body))
