"""Python literals as `ruff format` leaves them, for modules that are written by the probe."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

WIDTH = 120


def quoted(text: str) -> str:
    """A string's literal: in double quotes, unless single ones need fewer escapes."""
    mark = "'" if text.count('"') > text.count("'") else '"'
    escaped = repr(f"{text}\"'")[1:-1].removesuffix("\"\\'").replace("\\'", "'")
    return f"{mark}{escaped.replace(mark, chr(92) + mark)}{mark}"


def lines(text: str, indent: int, after: str = ",") -> Iterator[str]:
    """A string as an argument on lines of its own, in pieces where one line does not take it."""
    pad = " " * indent
    whole = f"{pad}{quoted(text)}{after}"
    if len(whole) <= WIDTH:
        yield whole
        return
    pieces = [""]
    for part in re.findall(r"[^ .]*[ .]|[^ .]+", text):
        if len(pad + quoted(pieces[-1] + part) + after) > WIDTH:
            pieces.append("")
        pieces[-1] += part
    yield from (f"{pad}{quoted(piece)}" for piece in pieces[:-1])
    yield f"{pad}{quoted(pieces[-1])}{after}"


def sequence(name: str, items: Iterable[str]) -> Iterator[str]:
    """An assignment of a tuple of strings: ``NAME: tuple[str, ...] = …``."""
    given = [quoted(item) for item in items]
    head = f"{name}: tuple[str, ...] = ("
    if len(given) < 2:
        yield f"{head}{''.join(f'{item},' for item in given)})"
        return
    yield head
    yield from (f"    {item}," for item in given)
    yield ")"


def mapping(head: str, entries: Iterable[str]) -> Iterator[str]:
    """An assignment of a dict, of entries ``key: value``: ``HEAD = {…}``."""
    given = list(entries)
    yield f"{head} = {{" if given else f"{head} = {{}}"
    if given:
        yield from (f"    {entry}," for entry in given)
        yield "}"


def imported(module: str, names: Iterable[str]) -> Iterator[str]:
    """An import of names from a module."""
    given = sorted(names, key=lambda name: (not name.isupper(), name.lower()))
    line = f"from {module} import {', '.join(given)}"
    if len(line) <= WIDTH:
        yield line
        return
    yield f"from {module} import ("
    yield from (f"    {name}," for name in given)
    yield ")"
