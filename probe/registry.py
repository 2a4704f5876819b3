"""The families and the checkpoints they list, read without importing any of their modules.

Every text decoder of transformers is a family. What is said of one comes from the first of these that knows it:

``families/NAME.py``
    A module whose name has no leading underscore and which assigns three literals: ``TITLE`` (text), ``CHECKPOINTS``
    (Hub ids in the page's order) and ``TWINS`` (a dict from twin name to its options; empty where the twins that are
    made for every decoder do).
``families/families.tsv``
    A row: class, title, checkpoints, and the wrapper that a text model without a class of its own is built in.
    ``families/twins.json`` names its twins where there is more to say than ``tiny``, from the class's defaults.
the installed transformers
    For a decoder that is newer than the table, see `probe.installed`.
"""

from __future__ import annotations

import ast
import csv
import difflib
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from probe import installed
from probe.errors import ProbeError

FAMILIES = Path(__file__).resolve().parent.parent / "families"

Origin = Literal["module", "table", "transformers"]


@dataclass(frozen=True)
class Family:
    """What is known of a family before anything runs.

    Attributes:
        name: model_type of the text model; the module's name.
        twins: name -> options; of a family whose module declares none ``{}`` or ``{"config": STEM}``, the published
            config under ``families/configs`` that the twin is shrunk from.
        doc: the module's docstring, empty where it has none or there is no module.
        path: the module's file; None where there is no module.
        root: model_type of the config that the twins are built from: the wrapper's where transformers builds the text
            model inside one only, else ``name``.
        origin: where all of this was read.
    """

    name: str
    title: str
    checkpoints: tuple[str, ...]
    twins: dict[str, dict[str, Any]]
    doc: str
    path: Path | None
    root: str
    origin: Origin
    declares_twins: bool = False
    """Whether its twins are those of its module, not those that are made for every decoder."""


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        class_name: the class that generates text; empty where a wrapper's does.
        group: ``text``, or ``text-in-wrapper`` for a text model that transformers builds inside a wrapper only, and for
            a wrapper that is known by its own name.
        wrapper: model_type of that wrapper, else empty.
        title: the family's name, empty where it has none but its class's.
    """

    model_type: str
    class_name: str
    group: str
    wrapper: str
    title: str
    checkpoints: tuple[str, ...]


def modules() -> list[str]:
    """The families that have a module, sorted; reads no file. An empty file is none: one is being written."""
    return sorted(path.stem for path in FAMILIES.glob("[!_.]*.py") if path.stat().st_size)


def names() -> list[str]:
    """The families that have a module or a row of the table, sorted."""
    return sorted({*modules(), *table()})


def families() -> list[Family]:
    """The families that `names` names."""
    return [_known(name) for name in names()]


def get(name: str) -> Family:
    """One family. Raises ProbeError with the nearest names where there is none of that name."""
    if (found := find(name)) is None:
        near = meant(name) or nearest(name, names())
        raise ProbeError(f"There is no family {name!r}{near}; `python -m probe list` shows them all.")
    return found


def find(name: str) -> Family | None:
    """One family, asking the installed transformers for one that has neither module nor row; None if there is none."""
    if (FAMILIES / f"{name}.py").is_file() and name in modules() or name in table():
        return _known(name)
    class_name = unlisted().get(name)
    if class_name is None:
        return None
    return Family(name, title(name, class_name), (), {"tiny": {}}, "", None, name, "transformers")


def unlisted() -> dict[str, str]:
    """The installed decoders that have neither module nor row: model_type -> class that generates text."""
    known = {*modules(), *table()}
    return {name: class_name for name, class_name in sorted(installed.decoders().items()) if name not in known}


def table() -> dict[str, Row]:
    """The rows of ``families.tsv`` by model_type; none where there is no such file."""
    return _table(*_version(FAMILIES / "families.tsv"))


def _version(path: Path) -> tuple[Path, int]:
    """A file and when it was written; 0 where there is none."""
    try:
        return path, path.stat().st_mtime_ns
    except FileNotFoundError:
        return path, 0


@lru_cache(maxsize=4)
def _table(path: Path, written: int) -> dict[str, Row]:
    if not written:
        return {}
    with path.open(encoding="utf-8", newline="") as stream:
        return {
            row["model_type"]: Row(
                row["model_type"],
                row["class"],
                row["group"],
                row["wrapper"],
                row["title"],
                tuple(filter(None, row["checkpoints"].split(","))),
            )
            for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        }


def default_twins(name: str) -> dict[str, str | None]:
    """The twins of a decoder that no module declares: name -> the published config that it is shrunk from, by its file
    name without ``.json``; None where that is the class's defaults."""
    return dict(_twins(*_version(FAMILIES / "twins.json")).get(name, {"tiny": None}))


@lru_cache(maxsize=4)
def _twins(path: Path, written: int) -> dict[str, dict[str, str | None]]:
    found: dict[str, dict[str, str | None]] = json.loads(path.read_bytes()) if written else {}
    return found


def title(name: str, class_name: str) -> str:
    """A family's title where nobody gave one: its class's name without what every decoder's has; the model_type where
    the class is another family's."""
    stem = re.sub("(Text)?(ForCausalLM|LMHeadModel|ForConditionalGeneration)$", "", class_name)
    return stem if _letters(stem) == _letters(name.removesuffix("_text")) else name


def meant(word: str) -> str:
    """`` (…)`` for what is no family's name and still tells one: a checkpoint that one lists, a class, a title, or the
    wrapper that one comes in; empty for anything else.
    """
    if having := [family.name for family in families() if word in family.checkpoints]:
        return f" (a checkpoint of the family {having[0]})"
    stem = _letters(re.sub(_ENDS, "", word))
    found = [name for name in names() if stem and stem in _other_names(name)]
    found = found or [name for name, row in table().items() if word and word == row.class_name]
    return f" (that is {' or '.join(found)} here)" if found else ""


_ENDS = r"(?<=.)(Text)?(For[A-Z]\w*|LMHeadModel|PreTrainedModel|(Text)?Model|(Text)?Config)$"
"""How the names of transformers' classes end, after what is the family's."""


def _other_names(name: str) -> set[str]:
    """The letters of what a family is called beside its name."""
    known = _known(name)
    return set(map(_letters, [*known.title.split(" / "), known.root, name, name.removesuffix("_text")]))


def _letters(text: str) -> str:
    return re.sub("[^a-z0-9]", "", text.lower())


def _known(name: str) -> Family:
    path = FAMILIES / f"{name}.py"
    if path.is_file() and path.stat().st_size:
        return _read(path)
    row = table()[name]
    said = row.title or title(name, row.class_name)
    return Family(name, said, row.checkpoints, _made_twins(name), "", None, row.wrapper or name, "table")


def _made_twins(name: str) -> dict[str, dict[str, Any]]:
    return {twin: {"config": stem} if stem else {} for twin, stem in default_twins(name).items()}


def nearest(word: str, known: list[str]) -> str:
    """`` (nearest: …)`` for an unknown word; empty where nothing is near."""
    spelled = {other.lower(): other for other in known}
    close = difflib.get_close_matches(word.lower(), spelled, n=3, cutoff=0.5)
    close += [other for other in spelled if word and other.startswith(word.lower()) and other not in close]
    return f" (nearest: {', '.join(spelled[other] for other in close[:3])})" if close else ""


def _read(path: Path) -> Family:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    except SyntaxError as error:
        raise ProbeError(f"The family module {path} does not parse (line {error.lineno}: {error.msg}).") from error
    found: dict[str, Any] = {}
    for node in tree.body:
        for name, value in _assigned(node):
            if name in ("TITLE", "CHECKPOINTS", "TWINS"):
                found[name] = _literal(path, name, value)
    if missing := [name for name in ("TITLE", "CHECKPOINTS", "TWINS") if name not in found]:
        raise ProbeError(f"The family module {path} does not declare {', '.join(missing)}.")
    name, own = path.stem, bool(found["TWINS"])
    wrapper = table()[name].wrapper if name in table() and not own else ""
    return Family(
        name=name,
        title=found["TITLE"],
        checkpoints=tuple(found["CHECKPOINTS"]),
        twins=found["TWINS"] if own else _made_twins(name),
        doc=ast.get_docstring(tree) or "",
        path=path,
        root=wrapper or name,
        origin="module",
        declares_twins=own,
    )


def _assigned(node: ast.stmt) -> list[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        return [(target.id, node.value) for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        return [(node.target.id, node.value)]
    return []


def _literal(path: Path, name: str, value: ast.expr) -> Any:
    expected = {"TITLE": (str, "a text"), "CHECKPOINTS": (tuple | list, "a tuple of ids"), "TWINS": (dict, "a dict")}
    kind, words = expected[name]
    try:
        literal = ast.literal_eval(value)
    except ValueError:
        literal = None
    if not isinstance(literal, kind):
        raise ProbeError(f"The family module {path} must write {name} as {words}, as a literal (line {value.lineno}).")
    return literal
